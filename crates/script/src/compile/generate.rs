//! Random scripts and packets for the comparison of the tiers.

use std::fmt::Write as _;

use wire::checksum::Sum;

/// How many random cases a test tries: so many, or a fifth of them in a quick run (`SIDESTEP_SCALE`), or as many as
/// `SIDESTEP_CASES` says.
pub(super) fn cases(full: u32) -> u32 {
    let named = std::env::var("SIDESTEP_CASES").ok().and_then(|cases| cases.parse().ok());
    let is_full = std::env::var("SIDESTEP_SCALE").is_ok_and(|scale| scale == "full");
    named.unwrap_or(if is_full { full } else { full / 5 })
}

/// Numbers that a seed decides (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number() as u8).collect()
    }
}

/// Interfaces that there are.
pub(super) const INTERFACES: [&str; 2] = ["eth0", "eth1"];

const ADDRESSES: [[u8; 16]; 2] = [
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
];

/// A frame; its checksums are mostly wrong.
pub(super) fn packet(random: &mut Random) -> Vec<u8> {
    let mut frame = random.bytes(12);
    for _ in 0..random.pick(&[0, 0, 0, 1, 2, 3]) {
        let tag = random.pick(&[0x8100_u16, 0x88a8]);
        frame.extend(tag.to_be_bytes());
        frame.extend(random.bytes(2));
    }
    let is_ipv6 = !random.one_in(3);
    let protocol = random.pick(&[6, 17, 17, if is_ipv6 { 58 } else { 1 }, 47]);
    let transport = transport(random, protocol);
    if is_ipv6 {
        frame.extend([0x86, 0xdd]);
        let (next, payload) = extended(random, protocol, transport);
        frame.extend([random.pick(&[0x60, 0x60, 0x60, 0x61, 0x50]), random.number() as u8, 0, 0]);
        frame.extend(length(random, payload.len()).to_be_bytes());
        frame.extend([next, 64]);
        for _ in 0..2 {
            let address = if random.one_in(2) { random.pick(&ADDRESSES).to_vec() } else { random.bytes(16) };
            frame.extend(address);
        }
        frame.extend(payload);
    } else {
        frame.extend(random.pick(&[0x0800_u16, 0x0800, 0x0800, 0x0806]).to_be_bytes());
        let words = random.pick(&[5, 5, 5, 6, 8, 4, 15]);
        let start = frame.len();
        frame.extend([0x40 | words, 0]);
        frame.extend(length(random, usize::from(words) * 4 + transport.len()).to_be_bytes());
        frame.extend(random.bytes(2));
        frame.extend(random.pick(&[[0, 0], [0x40, 0], [0x20, 0], [0, 9]]));
        frame.extend([64, protocol, 0, 0, 10, 0, 0, random.pick(&[1, 2])]);
        let other = if random.one_in(2) { vec![10, 0, 0, random.pick(&[1, 2])] } else { random.bytes(4) };
        frame.extend(other);
        frame.extend(random.bytes(usize::from(words.saturating_sub(5)) * 4));
        let checksum = Sum::of(&frame[start..]).checksum();
        frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(transport);
    }
    if random.one_in(4) {
        // The kernel tests none that has a link header only.
        let length = 15 + random.below(frame.len() - 14);
        frame.truncate(length);
    }
    // Of the link: frames have 60 bytes at least.
    if random.one_in(4) {
        let count = random.below(20);
        frame.extend(random.bytes(count));
    }
    frame
}

/// Mostly the right one.
fn length(random: &mut Random, right: usize) -> u16 {
    match random.below(10) {
        0 => 0,
        1 => random.below(100) as u16,
        2 => right.saturating_sub(random.below(8)) as u16,
        _ => right as u16,
    }
}

fn transport(random: &mut Random, protocol: u8) -> Vec<u8> {
    let payload = if protocol == 17 && random.one_in(2) {
        named(random)
    } else {
        let count = random.below(24);
        random.bytes(count)
    };
    let ports = [0, random.pick(&[22, 53, 80]), 0, random.pick(&[22, 53, 80])];
    let mut bytes = match protocol {
        6 => [
            &ports[..],
            &random.bytes(8),
            &[random.pick(&[0x50, 0x60, 0x80, 0x30]), 2, 1, 0],
            &random.bytes(4),
        ]
        .concat(),
        17 => {
            let length = length(random, 8 + payload.len()).to_be_bytes();
            let checksum = if random.one_in(4) { vec![0, 0] } else { random.bytes(2) };
            [&ports[..], &length, &checksum].concat()
        }
        _ => [&[random.pick(&[1, 8, 128, 135]), 0][..], &random.bytes(2)].concat(),
    };
    bytes.extend(payload);
    bytes
}

/// What `packet_named` is: a tag, and strings with their lengths.
fn named(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(&["GET", "Get", "PUT", "get"]).as_bytes().to_vec();
    bytes.push(random.pick(&[7, 7, 9]));
    let name = random.pick(&NAMES).as_bytes();
    let length = if random.one_in(8) { random.below(40) } else { name.len() };
    bytes.push(length as u8);
    bytes.extend(name);
    let rest = random.below(9);
    bytes.extend(random.bytes(rest));
    bytes
}

/// Extension headers before a transport header.
fn extended(random: &mut Random, protocol: u8, transport: Vec<u8>) -> (u8, Vec<u8>) {
    let mut next = protocol;
    let mut bytes = transport;
    let count = if random.one_in(8) { random.below(11) } else { random.pick(&[0, 0, 0, 1, 1, 2]) };
    for _ in 0..count {
        let kind = random.pick(&[0, 43, 44, 51, 60, 60, 135]);
        let units = random.pick(&[0, 0, 1]);
        let mut header = vec![next, units];
        match kind {
            44 => header = vec![next, 0, 0, random.pick(&[0, 0, 1, 8]), 0, 0, 0, 9],
            51 => {
                header[1] = 4;
                header.extend(random.bytes(22));
            }
            43 => {
                header.extend([0, random.pick(&[0, 0, 1])]);
                header.extend(random.bytes(4 + usize::from(units) * 8));
            }
            _ => header.extend(random.bytes(6 + usize::from(units) * 8)),
        }
        header.extend(bytes);
        bytes = header;
        next = kind;
    }
    (next, bytes)
}

/// Strings that packets have.
const NAMES: [&str; 7] = [
    "",
    "x",
    "Readme",
    "readme",
    "www.example.org",
    "WWW.Example.ORG",
    "a-name-of-more-than-24-octets.example",
];

/// A script about packets.
pub(super) fn script(random: &mut Random) -> String {
    let mut text = String::from(
        "local HOME = { [4] = \"192.0.2.7\", [6] = \"2001:db8::7\" }
local PORTS = { 53, 80, 443 }
local least = math.min
math.least, string.most = math.min, math.max
local WAYS = { [0] = \"eth0\", \"eth1\" }
local REFUSED = { readme = true, README = false, [\"www.example.org\"] = true }
local NUMBERS = { x = 5, Readme = 6, [\"\"] = 7, GET = 8, [7] = 9 }
register_dynamic_protbuf {
  name = \"packet_named\", payload_field = \"rest\",
  protocol_fields = {
    { \"tag\", 0, 24, \"text\" }, { \"kind\", 24, 8, \"int\" }, { \"size\", 32, 8, \"int\" },
    { \"name\", 40, 0, \"text\" }, { \"rest\", 40, 0 },
  },
  get_field_changes = { field = \"size\", unit = 8, grows = \"name\" },
}
local names = nf.table { name = \"names\", key = { \"text:24\", \"int\" }, limit = 4 }
local seen = nf.table { name = \"seen\", key = { \"int\", \"ipv6\" }, limit = 3, expires = 3600000 }
local open = nf.table { name = \"open\", key = \"ipv4\", value = \"mac\" }
local flags = nf.table { name = \"flags\", key = { \"bool\", \"mac\" }, value = \"bool\", when_full = \"oldest\" }
local pairs_of = nf.table { name = \"pairs\", key = \"int\", value = { \"int\", \"int\" }, limit = 3 }
local count = nf.counter(\"count\")
local few = nf.flows { name = \"few\", limit = 3, when_full = \"refuse\" }
local flows = nf.flows { name = \"flows\" }
local near = nf.prefixes { name = \"near\" }
near:add(\"10.0.0.0/8\", 3)
near:add(\"10.0.0.2\", 4)
near:add(\"2001:db8::/32\", 5)
near:add(\"fd00::/8\")
local function next_of(flow, a) flow.next = flow.next + a return flow.next end
local function ip_of(p)
  local eth = p:data(packet_eth)
  return eth and (eth:data(packet_ip) or eth:data(packet_ip6))
end
function process_packet(p)
  local a, b = 1, 2
  local eth = p:data(packet_eth)
  if not eth then return NF_DROP end
",
    );
    let mut views = vec![("eth", "eth"), ("p", "raw")];
    let about_strings = random.one_in(5);
    for (name, expression) in [
        ("ip4", "eth:data(packet_ip)"),
        ("ip6", "eth:data(packet_ip6)"),
        ("ip", "ip_of(p)"),
        ("udp", "ip6 and ip6:data(packet_udp)"),
        ("tcp", "ip6 and ip6:data(packet_tcp)"),
        ("icmp6", "ip6 and ip6:data(packet_icmp6)"),
        ("udp4", "ip4 and ip4:data(packet_udp)"),
        ("named", "udp and udp:data():data(packet_named)"),
        ("named4", "udp4 and udp4:data():data(packet_named)"),
        ("tcp4", "ip4 and ip4:data(packet_tcp)"),
        ("fragment", "ip6 and ip6:data(packet_ip6_fragment)"),
    ] {
        let needs = expression.split(' ').next().unwrap_or_default();
        let known = !expression.contains(" and ") || views.iter().any(|(view, _)| *view == needs);
        let wanted = about_strings && matches!(name, "ip6" | "udp" | "named");
        if wanted || known && (name.starts_with("ip") && random.one_in(2) || random.one_in(4)) {
            let _ = writeln!(text, "  local {name} = {expression}");
            views.push((name, name));
        }
    }
    for _ in 0..1 + random.below(4) {
        statement(random, &views, &mut text, 0);
    }
    let verdict =
        random.pick(&["NF_ACCEPT", "NF_DROP", "XT_CONTINUE", "NF_STOLEN", "a", "(a ~ b) & 1", "nil"]);
    let _ = writeln!(text, "  return {verdict}\nend");
    text
}

fn statement(random: &mut Random, views: &[(&str, &str)], text: &mut String, depth: usize) {
    let (view, kind) = random.pick(views);
    let guarded = !matches!(kind, "raw" | "eth") && !random.one_in(8);
    if guarded {
        let _ = writeln!(text, "  if {view} then");
    }
    let choice = random.below(if depth < 2 { 12 } else { 4 });
    match choice {
        _ if kind.starts_with("named") && random.one_in(2) => strings(random, view, kind, text),

        9 | 10 if matches!(kind, "ip4" | "ip6") => resized(random, view, kind, text),
        11 if random.one_in(3) => tags(random, view, kind, text),
        11 => redirect(random, view, kind, text),
        9 | 10 => turns(random, view, kind, text),
        8 => {
            let _ = writeln!(text, "  {}", flow(random, view, kind));
        }
        7 => {
            let _ = writeln!(text, "  {}", table(random, view, kind));
        }
        0 if random.one_in(4) => {
            let [one, two, three] = [(); 3].map(|()| integer(random, view, kind, 1));
            let _ = match random.below(3) {
                0 => writeln!(text, "  a, b, a = {one}, {two}, {three}"),
                1 => writeln!(text, "  a, b = b, {one}"),
                _ => writeln!(
                    text,
                    "  do local all, i = p:get(), {one} & 63 all[i], all[{two} & 63], i = {three} & 255, a & 255, 7 a = i end"
                ),
            };
        }
        0 => {
            let _ = writeln!(text, "  {} = {}", random.pick(&["a", "b"]), integer(random, view, kind, 2));
        }
        1 | 2 => {
            let _ = writeln!(text, "  {}", write(random, view, kind));
        }
        3 => {
            let value = match kind {
                "eth" => format!("{view}:smac():get()"),
                "ip4" | "ip6" | "ip" => format!("{view}:daddr():get()"),
                _ => match random.below(5) {
                    0 => "p".to_owned(),
                    1 if !integers(kind).is_empty() => format!("{view}:{}()", random.pick(integers(kind)).0),
                    2 => format!("p:raw({}, {}):get()", random.below(50), random.below(30)),
                    3 if kind.starts_with("named") => {
                        format!("{view}:tag():get(){}", random.pick(&["", ":lower()"]))
                    }
                    _ => condition(random, view, kind),
                },
            };
            let number = integer(random, view, kind, 1);
            let _ = match random.below(3) {
                0 => writeln!(
                    text,
                    "  nf.log(\"a:\", {{ a = a, none = nil, it = {value}, Number_2 = {number} }})"
                ),
                1 => writeln!(text, "  nf.log {{ number = {number}, b = b, it = {value} }}"),
                _ => writeln!(text, "  nf.log(\"a:\", a, nil, {value}, {number})"),
            };
        }
        4 | 5 => {
            let _ = writeln!(text, "  if {} then", condition(random, view, kind));
            statement(random, views, text, depth + 1);
            if random.one_in(2) {
                let _ = writeln!(text, "  else");
                statement(random, views, text, depth + 1);
            }
            let _ = writeln!(text, "  end");
        }
        _ => {
            let _ = writeln!(
                text,
                "  for i = 1, #PORTS do\n    if PORTS[i] == {} then",
                integer(random, view, kind, 1)
            );
            let end = random.pick(&["a = i break", "return NF_DROP", "b = b + i"]);
            let _ = writeln!(text, "    {end} end\n  end");
        }
    }
    if guarded {
        let _ = writeln!(text, "  end");
    }
}

/// The packet grows or shrinks behind its IP header, and is looked at anew.
fn resized(random: &mut Random, view: &str, kind: &str, text: &mut String) {
    let (at, protocol) = if kind == "ip6" { (54, "packet_ip6") } else { (34, "packet_ip") };
    let count = random.pick(&[2, 8, 8, 8, 16, 20, 24, 5]);
    let act = random.pick(&["grow", "shrink", "shrink"]);
    let when = random.pick(&["a < 9", "a ~= b", "#p > 60", "p:get()[21] == 64"]);
    let _ = writeln!(
        text,
        "  if {view} and p:get()[12] ~= 0x81 and p:get()[12] ~= 0x88 then
    if {when} then p:{act}({at}, {count}) end
    local now = p:data(packet_eth):data({protocol})
    if now then b = now:daddr():get() == \"fd00::2\" and 5 or #now now:saddr():set({}) end
    p:get()[{at}] = 60
    nf.log(#p, p:get()[{}])
    return b & 1
  end",
        random.pick(addresses(kind).1),
        random.below(70)
    );
}

/// A use of strings in the packet.
fn strings(random: &mut Random, view: &str, kind: &str, text: &mut String) {
    let known = random.pick(&NAMES);
    let lower = random.pick(&["", ":lower()"]);
    let string = format!("{view}:{}():get(){lower}", random.pick(&["name", "name", "name", "tag"]));
    let number = integer(random, view, kind, 1);
    let _ = match random.below(7) {
        6 => writeln!(text, "  if (\"{known}\"):lower() == {string} then a = a + 1 end"),
        0 => writeln!(text, "  if {string} {} \"{known}\" then a = 3 end", random.pick(&["==", "~="])),
        1 => writeln!(text, "  if REFUSED[{string}] then return NF_DROP end"),
        2 => writeln!(text, "  a = a + #{string} b = NUMBERS[{string}] or {number}"),
        3 => writeln!(text, "  a = names:add({string}, {number} & 1, 1) or 9"),
        4 => writeln!(text, "  if names:get({string}, 1) then names:set(\"{known}\", 1, nil) a = 4 end"),
        _ => writeln!(text, "  local s = {string} if s == \"get\" or s == \"readme\" then b = 8 end"),
    };
}

/// VLAN tags come and go, and the packet is looked at anew.
fn tags(random: &mut Random, view: &str, kind: &str, text: &mut String) {
    let condition = condition(random, view, kind);
    let number = integer(random, view, kind, 1);
    let _ = writeln!(text, "  if {condition} then\n    a = p:vlan_id() or a");
    let _ = match random.below(4) {
        0 => writeln!(text, "    p:push_vlan({number} & {})", random.pick(&[4095, 4095, 8191])),
        1 => writeln!(text, "    b = p:pop_vlan() or 3 nf.log(#p, p:pop_vlan())"),
        2 => writeln!(text, "    p:push_vlan(9) nf.log(p:vlan_id(), p:pop_vlan(), p:vlan_id())"),
        _ => writeln!(text, "    nf.log(p:pop_vlan()) p:push_vlan({number} & 15) p:get()[40] = 7"),
    };
    let _ = writeln!(
        text,
        "    nf.log(p:vlan_id(), #p, p:get()[20], p:get()[12])\n    return {number} & 1\n  end"
    );
}

/// A packet leaves through another interface, on some ways.
fn redirect(random: &mut Random, view: &str, kind: &str, text: &mut String) {
    let condition = condition(random, view, kind);
    let number = integer(random, view, kind, 1);
    let _ = writeln!(text, "  if {condition} then");
    let _ = match random.below(4) {
        0 => writeln!(text, "    return {view}:redirect(\"eth0\")"),
        1 => writeln!(text, "    b = p:redirect(WAYS[{number} & {}])", random.pick(&[1, 1, 3])),
        2 => writeln!(text, "    nf.mirror(p, {number} > 9 and \"eth0\" or \"mon0\")"),
        _ => writeln!(text, "    a = p:redirect({number} > 9 and \"eth0\" or \"eth1\")"),
    };
    let _ = writeln!(text, "  end");
}

/// A use of the tables.
fn table(random: &mut Random, view: &str, kind: &str) -> String {
    let number = integer(random, view, kind, 1);
    let address = match kind {
        "ip6" => format!("{view}:{}():get()", random.pick(&["saddr", "daddr"])),
        "ip4" => format!("\"::ffff:\" .. {view}:{}():get()", random.pick(&["saddr", "daddr"])),
        _ => "\"2001:db8::1\"".to_owned(),
    };
    match random.below(12) {
        11 => format!("local one, other = pairs_of:get({number} & 3) if one then a, b = other, one end"),
        10 => format!("if not pairs_of:set({number} & 3, a, b) then b = 0 end"),
        9 => format!("local one, other = pairs_of:add(a & 3, {number}, b) a = one or other or 3"),
        8 => format!("a = count:add(seen:get({number} & 1, {address}){})", random.pick(&["", " or 2"])),
        0 => format!("a = seen:get({number}, {address}) or 1"),
        1 => format!("if not seen:set({number} & 1, {address}, b) then b = 0 end"),
        2 => format!("b = seen:add(a & 1, {address}, {number}) or 7"),
        3 => format!("if seen:delete(b, {address}) then a = 5 end"),
        4 => format!("if seen:set({number} & 1, {address}, nil) then a = count:add() + count:get() end"),
        5 if kind == "ip4" => format!("if open:get({view}:saddr():get()) == eth:smac():get() then return NF_DROP end open:set({view}:saddr():get(), eth:smac():get())"),
        6 if kind.starts_with("ip") => format!("a = near:find({view}:saddr():get()) or 9"),
        _ => "if flags:get(a == 1, eth:smac():get()) then b = b + 1 end flags:set(a == 1, eth:smac():get(), b > a)".to_owned(),
    }
}

/// A loop whose turns the packet decides.
fn turns(random: &mut Random, view: &str, kind: &str, text: &mut String) {
    let number = integer(random, view, kind, 1);
    let few = match random.below(5) {
        0 => format!("({number} & {})", random.pick(&[3, 7, 12])),
        1 => format!("math.min(math.max({number}, -2), {})", random.below(9)),
        2 => format!("({number}) % {}", 1 + random.below(9)),
        3 => format!("({number} & 63) // 8"),
        _ => format!("math.max(-3, ({number} & 15) >> 1)"),
    };
    let place = format!("p:get()[{}]", random.pick(&["i", "i + 14", "a & 63", "(i * 4 + 20) & 127"]));
    let act = match random.below(5) {
        0 => format!("a = a + {place}"),
        1 => "b = b * 3 + i".to_owned(),
        2 => format!("if {place} == {} then break end b = b ~ i", random.below(4)),
        3 => format!("if i > 2 then return NF_DROP end a = {place}"),
        _ => format!("p:raw(i + {}, 1):set(i & 255)", random.below(50)),
    };
    let _ = match random.below(7) {
        0 => writeln!(text, "  for i = 0, {few} do {act} end"),
        // So long that it is compiled once.
        6 => writeln!(
            text,
            "  for i = 0, {few} do
    {act}
    for j = i, i + 2 + (a & 1) do if p:get()[j + 14] == {number} then b = b + j break end a = a ~ b end
    if b == 7 then a = a + p:get()[20 + i] elseif a > b then b = b + 1 end
  end"
        ),
        1 => writeln!(text, "  for i = {few}, {} do {act} end", random.below(10)),
        2 => writeln!(text, "  for i = {few}, 0, {} do {act} end", random.pick(&["-1", "-2"])),
        3 => writeln!(
            text,
            "  do local i, last = 0, {few} while i < last do {act} i = i + 1 + (a & 1) end end"
        ),
        4 => writeln!(
            text,
            "  do local i, last = {few}, {few} if last > 5 then last = 5 end repeat {act} i = i + 2 until i >= last end"
        ),
        // As the options of TCP are walked through.
        _ => writeln!(
            text,
            "  do local all = p:get() local i, last = 20, 20 + {few} * 4
  while i < last and i < #all do
    local kind = all[i]
    if kind == 0 then break end
    if kind == 1 then i = i + 1 else
      local length = i + 1 < #all and all[i + 1] or 0
      if length < 2 then b = kind break end
      i = i + length
    end
  end end"
        ),
    };
}

/// A use of the packet's flow.
fn flow(random: &mut Random, view: &str, kind: &str) -> String {
    let mut text = format!("do local flow = p:flow({})", random.pick(&["", "few", "few", "flows"]));
    if random.one_in(4) {
        let _ = write!(text, " {}", write(random, view, kind));
    }
    if !random.one_in(6) {
        text.push_str(" if flow then");
    }
    let guarded = text.ends_with("then");
    for _ in 0..1 + random.below(3) {
        let number = integer(random, view, kind, 1);
        let _ = match random.below(7) {
            0 => write!(text, " a = flow.count b = flow.last"),
            1 => write!(text, " flow.count = flow.count + 1 a = a + flow.count"),
            2 => write!(text, " flow.last = {number}"),
            3 => write!(text, " if flow:is_reply() then a = a + 2 end"),
            4 => write!(text, " b = flow:forget() and 5 or 6"),
            5 => write!(text, " a, flow.last = flow.last, a"),
            _ => write!(text, " b = next_of(flow, a)"),
        };
    }
    text.push_str(if guarded { " else b = 8 end end" } else { " end" });
    text
}

/// Fields of a kind of view that are integers, with their bits.
fn integers(kind: &str) -> &'static [(&'static str, u32)] {
    match kind {
        "eth" => &[("type", 16)],
        "ip4" => &[
            ("ihl", 4),
            ("tos", 8),
            ("tot_len", 16),
            ("id", 16),
            ("frag_off", 13),
            ("ttl", 8),
            ("protocol", 8),
            ("check", 16),
            ("version", 4),
        ],
        "ip6" => &[
            ("tclass", 8),
            ("flow_label", 20),
            ("payload_len", 16),
            ("nexthdr", 8),
            ("hop_limit", 8),
            ("version", 4),
        ],
        "ip" => &[("version", 4)],
        "udp" | "udp4" => &[("sport", 16), ("dport", 16), ("len", 16), ("check", 16)],
        "tcp" | "tcp4" => &[
            ("sport", 16),
            ("dport", 16),
            ("seq", 32),
            ("doff", 4),
            ("flags", 8),
            ("window", 16),
            ("check", 16),
        ],
        "icmp6" => &[("type", 8), ("code", 8), ("check", 16)],
        "named" | "named4" => &[("kind", 8), ("size", 8)],
        "fragment" => &[("nexthdr", 8), ("frag_off", 13), ("id", 32)],
        _ => &[],
    }
}

fn addresses(kind: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        "eth" => (&["smac", "dmac"], &["\"AA:BB:CC:DD:EE:FF\"", "\"02:00:00:\"", "\"02:00:00:00:00:01\""]),
        "ip4" => (&["saddr", "daddr"], &["\"10.0.0.1\"", "\"192.168.\"", "\"10.0.0.2\"", "\"x\""]),
        "ip6" => (&["saddr", "daddr"], &["\"2001:db8::1\"", "\"fd00::2\"", "\"::\""]),
        "ip" => (&["saddr", "daddr"], &["\"10.0.0.1\"", "\"fd00::2\"", "HOME[ip:version():get()]"]),
        _ => (&[], &[]),
    }
}

fn integer(random: &mut Random, view: &str, kind: &str, depth: usize) -> String {
    let fields = integers(kind);
    match random.below(if depth > 0 { 9 } else { 5 }) {
        8 => {
            let [one, other] = [(); 2].map(|()| integer(random, view, kind, depth - 1));
            // Whatever they are called.
            format!("{}({one}, {other})", random.pick(&["least", "math.least", "string.most"]))
        }
        0 | 1 if !fields.is_empty() => format!("{view}:{}():get()", random.pick(fields).0),
        2 => format!("#{view}"),
        3 => format!("{}", random.below(100)),
        4 => random.pick(&["a", "b"]).to_owned(),
        5 => {
            let [one, other] = [(); 2].map(|()| integer(random, view, kind, depth - 1));
            format!("({one} {} {other})", random.pick(&["+", "-", "*", "&", "|", "~", "//", "%", "<<"]))
        }
        6 => format!("p:get()[{}]", random.below(70)),
        7 if kind != "ip" => format!("{view}:raw({}, {}):get()[0]", random.below(20), 1 + random.below(4)),
        _ => format!("{}", random.below(300)),
    }
}

fn condition(random: &mut Random, view: &str, kind: &str) -> String {
    let (fields, values) = addresses(kind);
    if !fields.is_empty() && random.one_in(2) {
        let one = format!("{view}:{}():get()", random.pick(fields));
        let other = match random.below(3) {
            0 => format!("{view}:{}():get()", random.pick(fields)),
            _ => random.pick(values).to_owned(),
        };
        return format!("{one} {} {other}", random.pick(&["==", "~="]));
    }
    if kind.starts_with("tcp") && random.one_in(2) {
        return format!("{view}:{}():get()", random.pick(&["syn", "ack", "fin"]));
    }
    let [one, other] = [(); 2].map(|()| integer(random, view, kind, 1));
    format!("{one} {} {other}", random.pick(&["==", "~=", "<", "<=", ">"]))
}

fn write(random: &mut Random, view: &str, kind: &str) -> String {
    let (fields, values) = addresses(kind);
    if !fields.is_empty() && random.one_in(2) {
        let value = match random.below(3) {
            0 => format!("{view}:{}():get()", random.pick(fields)),
            _ => random.pick(values).to_owned(),
        };
        return format!("{view}:{}():set({value})", random.pick(fields));
    }
    let fields = integers(kind);
    if !fields.is_empty() && random.one_in(2) {
        let (field, bits) = random.pick(fields);
        let value = integer(random, view, kind, 1);
        return if random.one_in(6) {
            format!("{view}:{field}():set({value})")
        } else {
            format!("{view}:{field}():set(({value}) & {})", (1_u64 << bits) - 1)
        };
    }
    let (from, length) = (random.below(60), 1 + random.below(18));
    match random.below(4) {
        0 => format!("p:raw({from}, {length}):set({})", random.below(256)),
        1 => format!("p:raw({from}, 3):set(\"abc\")"),
        2 => format!("p:get()[{from}] = {} & 255", integer(random, view, kind, 1)),
        _ if kind.starts_with("tcp") => {
            format!("{view}:{}():set({})", random.pick(&["syn", "rst"]), random.pick(&["true", "false"]))
        }
        _ if kind == "ip" => "a = 3".to_owned(),
        _ => format!("{view}:raw({}, {}):set({})", random.below(24), 1 + random.below(4), random.below(256)),
    }
}
