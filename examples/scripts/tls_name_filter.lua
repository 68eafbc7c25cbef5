-- TLS connections to a name are ended before their first message is whole: the name that a ClientHello asks for stands in the
-- clear, and is found however the message is split over segments and records.
--
-- At prerouting or ingress of the interface that clients are at. A connection whose beginning was not seen is reset when its
-- client sends something, and begins anew. QUIC (UDP port 443) is another protocol: where it is dropped, browsers use TCP.

local answer = require "lib.answer"

local REFUSED = { ["forbidden.example"] = true }
local RST_ACK = 0x14

-- A fragment of what may be TCP: no sender of TCP needs any, and who makes them hides what is in them.
local function is_fragment(eth)
  local ip = eth:data(packet_ip)
  if ip then return ip:protocol():get() == 6 and (ip:mf():get() or ip:frag_off():get() > 0) end
  local ip6 = eth:data(packet_ip6)
  local fragment = ip6 and ip6:data(packet_ip6_fragment)
  if not fragment then return false end
  local kind = fragment:nexthdr():get()
  return kind ~= 17 and kind ~= 50 and kind ~= 58 -- UDP, ESP, ICMPv6
end

-- Ends the connection at the client, which learns it at once, and at the server.
local function reset(p, ip, tcp)
  local client, server = tcp:sport():get(), tcp:dport():get()
  local seq, ack = tcp:seq():get(), tcp:ack_seq():get()
  nf.create_packet(p, answer.tcp(ip, server, client, ack, seq + #tcp:data(), RST_ACK, 0))
  nf.create_packet(p, answer.onward(ip, client, server, seq, ack, RST_ACK, 0))
end

function process_packet(p)
  local eth = p:data(packet_eth)
  if is_fragment(eth) then return NF_DROP end
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 443 then return XT_CONTINUE end
  local stream = p:stream()
  -- So far the kernel comes by itself, but for the first segments of each connection.
  local decided = stream:decided()
  if decided then return decided end

  local fault = stream:fault()
  if fault and fault ~= "unknown" and fault ~= "full" then return NF_DROP end
  local name = tls.server_name(stream)
  if name == nil and not fault then return XT_CONTINUE end
  if name ~= nil and not REFUSED[name] then return stream:accept() end
  reset(p, ip, tcp)
  return fault == "unknown" and NF_DROP or stream:refuse()
end

local test = require "test"

local function client_hello(name)
  local entry = string.pack(">I1s2", 0, name)
  local extensions = string.pack(">I2s2", 10, "\0\2\0\29") .. string.pack(">I2s2", 0, string.pack(">s2", entry))
  local hello = test.hex "0303" .. ("r"):rep(32) .. "\0" .. test.hex "0002 1301 0100" .. string.pack(">s2", extensions)
  local handshake = "\1" .. string.pack(">I3", #hello) .. hello
  return test.hex "16 0301" .. string.pack(">s2", handshake)
end

-- A segment of a connection that is known by the client's port; sequence numbers of octets begin with 1.
local function segment(port, seq, octets)
  return test.tcp("2001:db8::a", port, "2001:db8::1", 443, "ack psh", octets, seq)
end

local function syn(port) test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", port, "2001:db8::1", 443, "syn")) end

function test_the_name_decides()
  for port, name in ipairs { "forbidden.example", "Forbidden.Example." } do
    syn(port)
    test.verdict(NF_DROP, segment(port, 1, client_hello(name)))
    test.verdict(NF_DROP, segment(port, 1, client_hello(name)))
    test.equal(#test.sent(), 2)
  end
  syn(3)
  test.verdict(NF_ACCEPT, segment(3, 1, client_hello "allowed.example"))
  test.verdict(NF_ACCEPT, segment(3, 1 + #client_hello "allowed.example", "and so on"))
  test.equal(#test.sent(), 0)
end

function test_it_is_found_wherever_it_is_split()
  local refused, allowed = client_hello "forbidden.example", client_hello "permitted.example"
  for at = 1, #refused - 1 do
    for text, verdict in pairs { [refused] = NF_DROP, [allowed] = NF_ACCEPT } do
      local port = 2 * at + verdict
      local first, second = text:sub(1, at), text:sub(at + 1)
      syn(port)
      test.verdict(NF_DROP, segment(port, 1 + at, second)) -- too early
      test.verdict(verdict, segment(port, 1, first))
      test.verdict(verdict, segment(port, 1 + at, second))
    end
  end
end

function test_a_copy_with_another_name_does_not_pass()
  local refused, allowed = client_hello "forbidden.example", client_hello "permitted.example"
  syn(1)
  test.verdict(NF_ACCEPT, segment(1, 1, allowed))
  test.verdict(NF_DROP, segment(1, 1, refused))
  test.verdict(NF_DROP, segment(1, 40, refused:sub(40)))
end

function test_what_is_no_client_hello_goes_on()
  for port, payload in ipairs { "GET / HTTP/1.1\r\n\r\n", test.hex "16 0301 0004 01000000", ("\23"):rep(60) } do
    syn(port)
    test.verdict(NF_ACCEPT, segment(port, 1, payload))
  end
end

function test_what_was_not_seen_from_its_beginning_is_reset()
  test.verdict(XT_CONTINUE, segment(1, 1, ""))
  test.verdict(NF_DROP, segment(1, 1, "the middle"))
  test.equal(#test.sent(), 2)
end

function test_fragments_of_tcp_are_dropped()
  local octets = tostring(segment(1, 1, "cut"):raw(14, 63):get())
  local packet = test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, "\6\0\0\1\0\0\0\7" .. octets:sub(41)))
  test.verdict(NF_DROP, packet)
  test.verdict(XT_CONTINUE, test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, "\17\0\0\8\0\0\0\7later")))
end
