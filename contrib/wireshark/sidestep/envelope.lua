-- The envelope of rendezvous datagrams, and what is in it but for the Noise messages' payloads, whose keys nobody logs
-- (docs/protocol.md, sections 5.4 and 6).

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end

local KINDS = { [1] = "first message", [2] = "answer" }
local TIERS = {
    [0] = "for clocks within a minute",
    [1] = "for clocks within an hour",
    [2] = "for devices without a clock",
}

local f = {
    kind = ProtoField.uint8("sidestep.envelope", "Envelope of", base.DEC, KINDS),
    nonce = ProtoField.bytes("sidestep.envelope.nonce", "Nonce"),
    receiver = ProtoField.string("sidestep.envelope.receiver", "Receiver", base.NONE, "Its role: L or H"),
    tier = ProtoField.uint8("sidestep.envelope.tier", "Tier", base.DEC, TIERS),
    epoch = ProtoField.uint64("sidestep.envelope.epoch", "Epoch"),
    length = ProtoField.uint16("sidestep.envelope.length", "Length of the message"),
    zeros = ProtoField.uint16("sidestep.envelope.padding", "Bytes of padding"),
    claim_prefix = ProtoField.ipv6("sidestep.claim.prefix", "Hopping prefix"),
    claim_length = ProtoField.uint8("sidestep.claim.prefix_length", "Length of the hopping prefix"),
    claim_clock = ProtoField.absolute_time("sidestep.claim.clock", "Sender's clock", base.UTC),
    claim_heard = ProtoField.bytes("sidestep.claim.heard", "Heard last, the first message"),
    ephemeral = ProtoField.bytes("sidestep.noise.ephemeral", "Ephemeral key"),
    offer = ProtoField.bytes("sidestep.noise.offer", "Offer, encrypted, with its tag"),
    copy_of = ProtoField.framenum("sidestep.copy_of", "A copy of the first message in", base.NONE, frametype.RETRANS_PREV),
    answer_to = ProtoField.framenum("sidestep.answer_to", "Answers the first message in", base.NONE, frametype.RESPONSE),
}
local e = {
    no_message = ProtoExpert.new(
        "sidestep.envelope.malformed", "No whole message inside", expert.group.MALFORMED, expert.severity.WARN
    ),
}

local CLAIM = 33

local envelope = { fields = f, experts = e }

-- The frame in which each first message was seen first, by its ephemeral key.
local firsts

function envelope.init()
    firsts = {}
end

local function claim(tvb, at, root)
    root:add(f.claim_prefix, tvb(at, 16))
    root:add(f.claim_length, tvb(at + 16, 1))
    local ms = tvb(at + 17, 8):uint64():tonumber()
    -- What no clock shows would be no time.
    if ms < 2 ^ 43 then
        root:add(f.claim_clock, tvb(at + 17, 8), NSTime.new(math.floor(ms / 1000), ms % 1000 * 1000000))
    end
    root:add(f.claim_heard, tvb(at + 25, 8))
end

-- Shows an envelope that the key log knows; how many bytes it has.
function envelope.dissect(known, cipher, tvb, pinfo, root, fields, experts)
    local raw, length = tvb:raw(), tvb:reported_len()
    local kind = known.aad:sub(1, 1) == "1" and 1 or 2
    pinfo.cols.protocol = "Sidestep"
    pinfo.cols.info = known.peer .. ", " .. KINDS[kind]
    root:append_text(", " .. known.peer .. ", " .. KINDS[kind])
    root:add(fields.peer, tvb(0, 0), known.peer):set_generated()
    root:add(f.kind, tvb(0, 0), kind):set_generated()
    root:add(f.nonce, tvb(0, 24))
    if kind == 1 and #known.aad == 11 then
        local aad = ByteArray.new(known.aad, true):tvb("Bound to the envelope")
        root:add(f.receiver, aad(1, 1)):set_generated()
        root:add(f.tier, aad(2, 1)):set_generated()
        root:add(f.epoch, aad(3, 8)):set_generated()
        pinfo.cols.info:append(string.format(", tier %d, epoch %s", aad(2, 1):uint(), tostring(aad(3, 8):uint64())))
    end
    if length < 42 or #raw < length or pinfo.in_error_pkt then
        root:add_proto_expert_info(length < 42 and experts.too_short or experts.cut)
        return #raw
    end
    local key, nonce, sealed = cipher.key(known.key), "\0\0\0\0" .. raw:sub(17, 24), raw:sub(25, -17)
    local verified = cipher.tag(key, nonce, known.aad, sealed) == raw:sub(-16)
    root:add(fields.tag, tvb(length - 16, 16))
    root:add(fields.verified, tvb(0, 0), verified):set_generated()
    if not verified then
        root:add_proto_expert_info(experts.bad_tag)
        return #raw
    end
    local plain = ByteArray.new(cipher.decrypt(key, nonce, sealed), true):tvb("Sidestep envelope")
    local message = plain(0, 2):uint()
    root:add(f.length, plain(0, 2))
    local least = 32 + (kind == 1 and CLAIM or 0)
    if message > plain:len() - 2 or message < least then
        root:add_proto_expert_info(e.no_message)
        return #raw
    end
    local at = 2
    if kind == 1 then
        claim(plain, at, root)
        at = at + CLAIM
    end
    local ephemeral = plain:raw(at, 32)
    root:add(f.ephemeral, plain(at, 32))
    if message > least then
        root:add(f.offer, plain(at + 32, message - least))
    end
    if plain:len() > 2 + message then
        root:add(f.zeros, plain(2 + message), plain:len() - 2 - message)
    end
    if kind == 1 then
        local first = firsts[ephemeral]
        firsts[ephemeral] = first or pinfo.number
        if first and first ~= pinfo.number then
            root:add(f.copy_of, tvb(0, 0), first):set_generated()
            pinfo.cols.info:append(", a copy")
        end
    elseif firsts[known.aad:sub(2)] then
        root:add(f.answer_to, tvb(0, 0), firsts[known.aad:sub(2)]):set_generated()
    end
    return #raw
end

return envelope
