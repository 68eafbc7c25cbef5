-- What is inside a data datagram: packets in their forms, and control messages (docs/protocol.md, sections 9 and 10).

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end

local FORMS = {
    [0] = "control",
    [1] = "IPv6 in full",
    [2] = "IPv6 of a context",
    [4] = "IPv4",
    [6] = "IPv6, addresses elided",
}
local CONTROL = {
    [0] = "Padding",
    [1] = "Opener",
    [2] = "Confirm",
    [3] = "Confirmed",
    [4] = "RekeyFirst",
    [5] = "RekeyAnswer",
    [6] = "Context",
    [7] = "ContextKnown",
    [10] = "MtuProbe",
    [11] = "MtuProbed",
    [12] = "RoundTrip",
    [13] = "RoundTripAnswer",
    [14] = "Close",
    [15] = "Half",
    [16] = "Meet",
    [17] = "Met",
    [18] = "WallClock",
}

local f = {
    form = ProtoField.uint8("sidestep.form", "Form", base.DEC, FORMS, 0xf0),
    context = ProtoField.uint16("sidestep.context", "Context"),
    header = ProtoField.bytes("sidestep.inner_header", "First 8 bytes of the IPv6 header"),
    inner_source = ProtoField.ipv6("sidestep.inner_source", "Source"),
    inner_destination = ProtoField.ipv6("sidestep.inner_destination", "Destination"),
    padding = ProtoField.uint16("sidestep.padding", "Bytes of padding"),
    control = ProtoField.uint8("sidestep.control", "Control message", base.DEC, CONTROL),
    body_length = ProtoField.uint16("sidestep.control.length", "Length of the body"),
    id = ProtoField.uint32("sidestep.control.id", "Id"),
    clock = ProtoField.int64("sidestep.control.clock", "Session clock (ms)"),
    echo = ProtoField.int64("sidestep.control.echo", "The question's clock (ms)"),
    overdue = ProtoField.uint32("sidestep.control.overdue", "An answer is overdue for (ms)"),
    keeps = ProtoField.bool("sidestep.control.keeps", "Keeps the session"),
    retires = ProtoField.uint16("sidestep.control.retires", "Retires the context"),
    size = ProtoField.uint16("sidestep.control.size", "Size of the outer packet"),
    half = ProtoField.uint8("sidestep.control.part", "Part"),
    key = ProtoField.bytes("sidestep.control.key", "Public key of another peer"),
    prefix = ProtoField.ipv6("sidestep.control.prefix", "It hops in"),
    prefix_length = ProtoField.uint8("sidestep.control.prefix_length", "Length of the prefix"),
    noise = ProtoField.bytes("sidestep.control.noise", "Noise message"),
    bytes = ProtoField.bytes("sidestep.control.bytes", "Bytes"),
    other_half = ProtoField.framenum("sidestep.other_half", "The other half is in"),
}
local function note(name, text, group, severity)
    return ProtoExpert.new("sidestep." .. name, text, expert.group[group], expert.severity[severity])
end
local e = {
    malformed = note("malformed", "Malformed", "MALFORMED", "WARN"),
    unknown_context = note("unknown_context", "Not in the key log, which began later", "UNDECODED", "NOTE"),
    unknown_control = note("unknown_control", "Of a type of another version", "PROTOCOL", "NOTE"),
}

local inner = { fields = f, experts = e }

local ipv6, ipv4 = Dissector.get("ipv6"), Dissector.get("ip")

-- Halves that wait for the other, by session, sender and id; and, by the frame of the second, what they came to.
local halves, joined

function inner.init()
    halves, joined = {}, {}
end

local function note_padding(tree, tvb, used)
    local rest = tvb:len() - used
    if rest > 0 then
        tree:add(f.padding, tvb(used, rest), rest)
    end
end

-- Hands a packet on to Wireshark's own dissector; the Info column keeps what stands there. Where that finds the packet
-- malformed, it shows it, and then fails.
local function hand_on(dissector, packet, pinfo, tree)
    pinfo.cols.info:append(": ")
    pinfo.cols.info:fence()
    pcall(dissector.call, dissector, packet, pinfo, tree)
end

-- An IPv6 packet without its addresses, which begins at `at`.
local function elided(tvb, at, number, pinfo, root, tree, from)
    if tvb:len() < at + 8 then
        return root:add_proto_expert_info(e.malformed, "Shorter than its header")
    end
    root:add(f.header, tvb(at, 8))
    local length = tvb(at + 4, 2):uint()
    local context = from.log.contexts[from.session .. from.sender .. string.format("%d", number)]
    if not context then
        pinfo.cols.info:append(", context unknown")
        note_padding(root, tvb, math.min(at + 8 + length, tvb:len()))
        return root:add_proto_expert_info(e.unknown_context)
    end
    local addresses = ByteArray.new(context.from .. context.to, true):tvb("Addresses of the context")
    root:add(f.inner_source, addresses(0, 16)):set_generated()
    root:add(f.inner_destination, addresses(16, 16)):set_generated()
    local have = math.min(length, tvb:len() - at - 8)
    if have < length and from.whole then
        return root:add_proto_expert_info(e.malformed, "Shorter than its header says")
    end
    note_padding(root, tvb, at + 8 + have)
    local packet = tvb:raw(at, 8) .. context.from .. context.to .. (have > 0 and tvb:raw(at + 8, have) or "")
    hand_on(ipv6, ByteArray.new(packet, true):tvb("Inner packet"), pinfo, tree)
end

-- A packet with its header, which begins at `at`, of so many bytes by its header.
local function in_full(dissector, tvb, at, least, length, pinfo, root, tree, from)
    if tvb:len() < at + least then
        return root:add_proto_expert_info(e.malformed, "Shorter than its header")
    end
    local stated = length(tvb)
    if stated < least or stated > tvb:len() - at and from.whole then
        return root:add_proto_expert_info(e.malformed, "Shorter than its header says")
    end
    local have = math.min(stated, tvb:len() - at)
    note_padding(root, tvb, at + have)
    hand_on(dissector, tvb(at, have):tvb(), pinfo, tree)
end

local bodies = {}

-- The body of a message, of this length exactly. The function gets the message's tree, and the body.
local function body(type, length, show)
    bodies[type] = function(tree, tvb)
        if tvb:len() ~= length then
            return false
        end
        show(tree, tvb)
        return true
    end
end

body(2, 8, function(tree, tvb)
    tree:add(f.clock, tvb(0, 8))
end)
local function clocks(tree, tvb)
    tree:add(f.echo, tvb(0, 8))
    tree:add(f.clock, tvb(8, 8))
end
body(3, 16, clocks)
body(13, 16, clocks)
body(6, 36, function(tree, tvb)
    tree:add(f.context, tvb(0, 2))
    tree:add(f.retires, tvb(2, 2))
    tree:add(f.inner_source, tvb(4, 16))
    tree:add(f.inner_destination, tvb(20, 16))
end)
body(7, 2, function(tree, tvb)
    tree:add(f.context, tvb(0, 2))
end)
local function size(tree, tvb)
    tree:add(f.size, tvb(0, 2))
end
body(10, 2, size)
body(11, 2, size)
body(12, 13, function(tree, tvb)
    tree:add(f.clock, tvb(0, 8))
    tree:add(f.overdue, tvb(8, 4))
    tree:add(f.keeps, tvb(12, 1))
end)
body(16, 32, function(tree, tvb)
    tree:add(f.key, tvb(0, 32))
end)
body(17, 49, function(tree, tvb)
    tree:add(f.key, tvb(0, 32))
    tree:add(f.prefix_length, tvb(32, 1))
    tree:add(f.prefix, tvb(33, 16))
end)
local function noise(tree, tvb)
    tree:add(f.noise, tvb())
    return true
end
bodies[4], bodies[5] = noise, noise

-- A half: keeps it, and with the other shows the whole.
local function half(message, tvb, id, pinfo, root, tree, from)
    local number, bytes = tvb(0, 1):uint(), tvb:len() > 1 and tvb:raw(1) or ""
    message:add(f.half, tvb(0, 1))
    if tvb:len() > 1 then
        message:add(f.bytes, tvb(1))
    end
    if number > 1 then
        return message:add_proto_expert_info(e.malformed, "Neither the first part nor the second")
    end
    local frame, key = pinfo.number, from.session .. from.sender .. id
    if not pinfo.visited and not joined[frame] then
        local waiting = halves[key]
        if waiting and waiting.part ~= number then
            local whole = number == 1 and waiting.bytes .. bytes or bytes .. waiting.bytes
            joined[frame], halves[key] = { whole = whole, other = waiting.frame }, nil
        else
            halves[key] = { part = number, bytes = bytes, frame = frame }
        end
    end
    local both = joined[frame]
    if both then
        message:add(f.other_half, tvb(0, 0), both.other):set_generated()
        -- A half is never of halves again.
        if #both.whole > 0 and both.whole:byte(1) >= 16 then
            inner.dissect(ByteArray.new(both.whole, true):tvb("Joined halves"), pinfo, root, tree, from)
        end
    end
end

local function control(tvb, pinfo, root, tree, from)
    if tvb:len() < 8 then
        return root:add_proto_expert_info(e.malformed, "Shorter than a control message")
    end
    local type, length, id = tvb(1, 1):uint(), tvb(2, 2):uint(), tvb(4, 4):uint()
    local name = CONTROL[type] or string.format("unknown (%d)", type)
    pinfo.cols.info:append(": " .. name)
    root:append_text(", " .. name)
    local message = root:add(f.control, tvb(1, 1))
    message:add(f.body_length, tvb(2, 2))
    message:add(f.id, tvb(4, 4))
    if length > tvb:len() - 8 then
        return message:add_proto_expert_info(e.malformed, "Shorter than its header says")
    end
    note_padding(root, tvb, 8 + length)
    if tvb(0, 1):uint() ~= 0 or not CONTROL[type] then
        return message:add_proto_expert_info(e.unknown_control)
    end
    local content = length > 0 and tvb(8, length):tvb()
    if type == 15 then
        if not content then
            return message:add_proto_expert_info(e.malformed, "A half without its part")
        end
        return half(message, content, id, pinfo, root, tree, from)
    end
    local show = bodies[type]
    if show and not (content and show(message, content)) then
        message:add_proto_expert_info(e.malformed, "A body of another length")
    end
end

-- Shows what is inside a datagram: in `root`, the protocol's tree, and in `tree`, the frame's. `from` has the key log,
-- session and sender, and whether the datagram was captured as a whole.
function inner.dissect(tvb, pinfo, root, tree, from)
    local form = (tvb(0, 1):uint() - tvb(0, 1):uint() % 16) / 16
    root:add(f.form, tvb(0, 1))
    if form == 0 then
        control(tvb, pinfo, root, tree, from)
    elseif form == 6 then
        elided(tvb, 0, 0, pinfo, root, tree, from)
    elseif form == 2 and tvb:len() >= 3 then
        root:add(f.context, tvb(1, 2))
        elided(tvb, 3, tvb(1, 2):uint(), pinfo, root, tree, from)
    elseif form == 1 then
        in_full(ipv6, tvb, 3, 40, function(packet)
            return 40 + packet(7, 2):uint()
        end, pinfo, root, tree, from)
    elseif form == 4 then
        in_full(ipv4, tvb, 0, 20, function(packet)
            return packet(2, 2):uint()
        end, pinfo, root, tree, from)
    else
        root:add_proto_expert_info(e.malformed, "No form of this version")
    end
end

return inner
