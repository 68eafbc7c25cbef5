-- Wireshark's view of Sidestep: with a key log (`sidestep up --keylog FILE`) it opens envelopes and data of the
-- moving-target protocol (docs/protocol.md), and hands inner packets on; without one it shows packets of the classic
-- profile (docs/classic.md). README.md in this folder says how to use it. For Wireshark 4.0 and later.
--
-- A datagram is known by its two ports, which the key log names, so others cost a look into a table. An envelope is known by
-- its nonce.

local directory = (__DIR__ or debug.getinfo(1, "S").source:match("^@(.*)[/\\]")) .. "/sidestep"

local function part(name)
    return assert(loadfile(directory .. "/" .. name .. ".lua"))(directory)
end

local KeyLog, bits = part("key_log"), part("bits")
local ciphers = { ["AES-256-GCM"] = part("aes_256_gcm"), ["ChaCha20-Poly1305"] = part("chacha20_poly1305") }
local inner, envelope, classic, mask = part("inner"), part("envelope"), part("classic"), part("mask")

local proto = Proto("sidestep", "Sidestep moving-target tunnel")
proto.prefs.key_log = Pref.string("Key log", "", "The file that `sidestep up --keylog` writes")
proto.prefs.verify = Pref.bool("Verify tags", true, "A third of the work; without it nothing tells a forged datagram")

local f = {
    peer = ProtoField.string("sidestep.peer", "Peer"),
    session = ProtoField.string("sidestep.session", "Session", base.NONE, "The same in the key logs of both ends"),
    lane = ProtoField.uint64("sidestep.lane", "Lane"),
    sender = ProtoField.string("sidestep.sender", "Sender", base.NONE, "The role of who sent it: L or H"),
    outgoing = ProtoField.bool("sidestep.outgoing", "Sent by who wrote the key log"),
    cipher = ProtoField.string("sidestep.cipher", "Cipher"),
    counter = ProtoField.uint32("sidestep.counter", "Counter"),
    tag = ProtoField.bytes("sidestep.tag", "Tag"),
    masked = ProtoField.uint16("sidestep.masked", "Bytes of another tunnel, masked"),
    masked_padding = ProtoField.uint16("sidestep.masked.padding", "Bytes of padding"),
    verified = ProtoField.bool("sidestep.verified", "Verified", base.NONE, nil, nil, "Whether the tag is right"),
}
local function note(name, text, group, severity)
    return ProtoExpert.new("sidestep." .. name, text, expert.group[group], expert.severity[severity])
end
local e = {
    bad_tag = note("bad_tag", "Not authentic: the tag is wrong", "DECRYPTION", "ERROR"),
    too_short = note("too_short", "Shorter than any datagram of the protocol", "MALFORMED", "WARN"),
    stranger = note("stranger", "Sent to an endpoint of a lane, but not by its peer", "SECURITY", "WARN"),
    replayed = note("replayed", "A datagram with this counter came before", "SEQUENCE", "NOTE"),
    rewritten = note("rewritten", "Its addresses are not those in the key log: the path translates them", "PROTOCOL", "NOTE"),
    cut = note("cut", "Cut short by the capture, or quoted by an error: not verified", "UNDECODED", "NOTE"),
}

for _, from in ipairs({ inner, envelope }) do
    for name, field in pairs(from.fields) do
        f[name] = field
    end
    for name, item in pairs(from.experts) do
        e[name] = item
    end
end
proto.fields, proto.experts = f, e

local outer_source, outer_destination = Field.new("ipv6.src"), Field.new("ipv6.dst")
local udp_ports = DissectorTable.get("udp.port")

-- Plaintexts of frames that were shown once are kept, up to so many bytes of them: a display filter asks for all again.
local KEPT = 128 * 1024 * 1024
-- Keys that are prepared at a time: those of lanes that live at a time, of many peers.
local PREPARED = 256
-- No datagram is longer.
local LONGEST = 9000

local log, looked, said, opened, kept, prepared, count

-- The last occurrence is the innermost so far: that which carries the datagram.
local function last(field)
    local all = { field() }
    return all[#all] and all[#all].range:raw()
end

-- Ports of lanes come to this dissector first; who had them before gets what is not a lane's.
local before = {}

local function take_port(_, port)
    if before[port] == nil then
        before[port] = udp_ports:get_dissector(port) or false
        udp_ports:add(port, proto)
    end
end

function proto.init()
    for port, dissector in pairs(before) do
        udp_ports:remove(port, proto)
        if dissector then
            udp_ports:add(port, dissector)
        end
    end
    before, opened, kept, prepared, count = {}, {}, 0, {}, 0
    inner.init()
    envelope.init()
    log = KeyLog.new(proto.prefs.key_log)
    log.found_port = take_port
    local problem = log:update()
    looked = os.time()
    if not problem and log.passed_over > 0 then
        problem = string.format("%d lines are no lines of a key log", log.passed_over)
    end
    -- Wireshark begins more than once with a capture.
    if problem and log.path ~= "" and problem ~= said then
        said = problem
        io.stderr:write(string.format("sidestep: key log %s: %s\n", log.path, problem))
    end
end

-- Sees at most once a second whether the log has grown: a capture may run.
local function look()
    local now = os.time()
    if now ~= looked then
        looked = now
        log:update()
    end
end

local function prepare(cipher, secret)
    local name = cipher .. secret
    local key = prepared[name]
    if not key then
        if count >= PREPARED then
            prepared, count = {}, 0
        end
        key = ciphers[cipher].key(secret)
        prepared[name], count = key, count + 1
    end
    return key
end

-- The counter of the datagram that begins at `at`, as a number and as four bytes.
local function counter_of(lane, raw, at)
    local mask = ciphers[lane.cipher].mask(prepare(lane.cipher, lane.header), raw:sub(at + 4, at + 19))
    local number, bytes = 0, {}
    for i = 1, 4 do
        local byte = bits.bxor(raw:byte(at + i - 1), mask:byte(i))
        number, bytes[i] = number * 256 + byte, string.char(byte)
    end
    return number, table.concat(bytes)
end

-- Whether the tag of a datagram is right.
local function is_genuine(lane, raw, counter)
    local key, nonce = prepare(lane.cipher, lane.data), string.rep("\0", 8) .. counter
    return ciphers[lane.cipher].tag(key, nonce, "", raw:sub(5, -17)) == raw:sub(-16)
end

-- What a data datagram is: its counter, plaintext, and whether its tag is right; nil where it was not looked at. `raw` is
-- what was captured of `length` bytes.
local function open(lane, raw, length, frame)
    local name = frame .. raw:sub(1, 4) .. raw:sub(-16)
    if opened[name] then
        return opened[name]
    end
    local number, counter = counter_of(lane, raw, 1)
    local result = { counter = number }
    if #raw == length and proto.prefs.verify then
        result.verified = is_genuine(lane, raw, counter)
    end
    if result.verified ~= false then
        local sealed = raw:sub(5, math.min(#raw, length - 16))
        local key, nonce = prepare(lane.cipher, lane.data), string.rep("\0", 8) .. counter
        result.plain = ciphers[lane.cipher].decrypt(key, nonce, sealed)
        kept = kept + #sealed
    end
    if kept < KEPT then
        opened[name] = result
    end
    return result
end

-- Datagrams of one size that left with one call are one to who captures on the machine itself (UDP_SEGMENT, UDP_GRO): the
-- size of each, or nil. Where another begins, its counter follows.
local function segment_size(lane, raw)
    local number, counter = counter_of(lane, raw, 1)
    for size = 20, math.min(#raw - 20, LONGEST) do
        local following = counter_of(lane, raw, size + 1)
        if following > number and following <= number + 64 and is_genuine(lane, raw:sub(1, size), counter) then
            return size
        end
    end
end

local function other(role)
    return role == "L" and "H" or "L"
end

-- Another tunnel's message that was masked, and how many bytes of padding it had.
local function masked(lane, message, padding, tvb, pinfo, tree)
    local session = log.sessions[lane.session] or {}
    local about = string.format("%s, lane %s, %s to %s, masked", session.peer or "unknown peer", lane.number, lane.sender,
        other(lane.sender))
    local root = tree:add(proto, tvb(), "Sidestep, " .. about)
    root:add(f.lane, tvb(0, 0), UInt64.new(tonumber(lane.number))):set_generated()
    root:add(f.sender, tvb(0, 0), lane.sender):set_generated()
    root:add(f.masked, tvb(), #message)
    if padding > 0 then
        root:add(f.masked_padding, tvb(), padding)
    end
    pinfo.cols.protocol = "Sidestep"
    pinfo.cols.info = about
    local first = message:byte(1)
    local whose = first and first >= 1 and first <= 4 and message:sub(2, 4) == "\0\0\0" and "wg" or "data"
    Dissector.get(whose):call(ByteArray.new(message, true):tvb("Masked"), pinfo, tree)
    return tvb:len()
end

-- A datagram between the ports of a lane: how many bytes of it were taken, 0 if it is not the lane's.
local function data(lane, same, tvb, pinfo, tree)
    local length, raw = tvb:reported_len(), tvb:raw()
    if length == 0 then
        return 0
    end
    -- Of a masked session; what was not captured whole cannot be told apart.
    if lane.mask and same and #raw == length and not pinfo.in_error_pkt then
        local key = prepare("ChaCha20-Poly1305", lane.mask)
        local function block(sample, number)
            return ciphers["ChaCha20-Poly1305"].masking(key, sample, number)
        end
        local own, message, padding = mask.open(block, raw)
        if not own then
            return masked(lane, message, padding, tvb, pinfo, tree)
        end
        tvb = tvb(mask.MARK):tvb()
        length, raw = tvb:reported_len(), tvb:raw()
    end
    -- An error quotes as much as it has room for, and its own length says nothing of the datagram's.
    local can_open = length >= 20 and #raw >= 20 and not pinfo.in_error_pkt
    local result = can_open and open(lane, raw, length, pinfo.number)
    if result and result.verified == false then
        local size = segment_size(lane, raw)
        for at = 0, size and length - 1 or -1, size or 1 do
            data(lane, same, tvb(at, math.min(size, length - at)):tvb(), pinfo, tree)
        end
        if size then
            return length
        end
    end
    if not same and not (result and result.verified) then
        return 0
    end
    local session = log.sessions[lane.session] or {}
    local peer = session.peer or "unknown peer"
    local about = string.format("%s, lane %s, %s to %s", peer, lane.number, lane.sender, other(lane.sender))
    pinfo.cols.protocol = "Sidestep"
    pinfo.cols.info = about
    local root = tree:add(proto, tvb(), "Sidestep, " .. about)
    local function generated(field, value)
        return root:add(field, tvb(0, 0), value):set_generated()
    end
    generated(f.peer, peer)
    generated(f.session, lane.session)
    generated(f.lane, UInt64.new(tonumber(lane.number)))
    generated(f.sender, lane.sender)
    if session.own then
        generated(f.outgoing, session.own == lane.sender)
    end
    generated(f.cipher, lane.cipher)
    if not same then
        root:add_proto_expert_info(e.rewritten)
    end
    if not result then
        root:add_proto_expert_info(length < 20 and e.too_short or e.cut)
        return #raw
    end
    root:add(f.counter, tvb(0, 4), result.counter)
    root:append_text(", counter " .. string.format("%d", result.counter))
    if #raw < length then
        root:add_proto_expert_info(e.cut)
    else
        root:add(f.tag, tvb(length - 16, 16))
        if result.verified ~= nil then
            generated(f.verified, result.verified)
        end
    end
    if result.verified == false then
        pinfo.cols.info:append(", not authentic")
        root:add_proto_expert_info(e.bad_tag)
        return #raw
    end
    if result.verified then
        local first = lane.seen[result.counter]
        lane.seen[result.counter] = first or pinfo.number
        if first and first ~= pinfo.number then
            root:add_proto_expert_info(e.replayed, string.format("Came before, in frame %d", first))
        end
    end
    if result.plain == "" then
        root:add_proto_expert_info(e.malformed, "Nothing inside")
        return #raw
    end
    local from = { log = log, session = lane.session, sender = lane.sender, whole = #raw == length }
    inner.dissect(ByteArray.new(result.plain, true):tvb("Sidestep"), pinfo, root, tree, from)
    return #raw
end

-- A datagram that may be one of the protocol: how many bytes of it were taken.
local function dissect(tvb, pinfo, tree)
    local ports = KeyLog.ports(pinfo.src_port, pinfo.dst_port)
    local known = tvb:len() >= 24 and log.envelopes[tvb:raw(0, 24)]
    if known then
        local root = tree:add(proto, tvb(), "Sidestep, envelope")
        local cipher = ciphers["ChaCha20-Poly1305"]
        return envelope.dissect(known, cipher, tvb, pinfo, root, f, e)
    end
    if not log.lanes[ports] and not log.endpoints[pinfo.dst_port] then
        return 0
    end
    local from, to = last(outer_source), last(outer_destination)
    if not from or not to then
        return 0
    end
    local lane, same = log:lane(ports, from, to)
    if lane then
        local taken = data(lane, same, tvb, pinfo, tree)
        if taken > 0 then
            return taken
        end
    end
    local theirs = (log.endpoints[pinfo.dst_port] or {})[to]
    if not theirs then
        return 0
    end
    local root = tree:add(proto, tvb(), "Sidestep, a stranger's datagram")
    pinfo.cols.protocol = "Sidestep"
    pinfo.cols.info = "a stranger's datagram, to lane " .. theirs.number
    root:add(f.session, tvb(0, 0), theirs.session):set_generated()
    root:add(f.lane, tvb(0, 0), UInt64.new(tonumber(theirs.number))):set_generated()
    root:add_proto_expert_info(e.stranger)
    return tvb:len()
end

function proto.dissector(tvb, pinfo, tree)
    look()
    local taken = dissect(tvb, pinfo, tree)
    if taken > 0 then
        return taken
    end
    for _, port in ipairs({ math.min(pinfo.src_port, pinfo.dst_port), math.max(pinfo.src_port, pinfo.dst_port) }) do
        if before[port] then
            -- What finds it malformed shows that, and then fails.
            local _, taken_by_it = pcall(before[port].call, before[port], tvb, pinfo, tree)
            return tonumber(taken_by_it) or tvb:len()
        end
    end
    return 0
end

proto:register_heuristic("udp", function(tvb, pinfo, tree)
    look()
    return dissect(tvb, pinfo, tree) > 0
end)

classic.register()
