-- Packets of another tunnel under a mask (docs/protocol.md section 9.6): what a datagram on such a lane is.

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end
local bits = dofile(directory .. "/bits.lua")

local MARK, SAMPLE, HEAD, LARGE = 8, 16, 56, 160
local TRAILER = MARK + SAMPLE

local mask = { MARK = MARK }

local function xor(text, stream)
    local out = {}
    for at = 1, #text do
        out[at] = string.char(bits.bxor(text:byte(at), stream:byte(at)))
    end
    return table.concat(out)
end

-- The text XORed with what the blocks of a sample have behind the mark.
local function lay_over(block, sample, text)
    local out = {}
    for at = 1, #text, HEAD do
        local part = text:sub(at, at + HEAD - 1)
        out[#out + 1] = xor(part, block(sample, (at - 1) / HEAD):sub(MARK + 1))
    end
    return table.concat(out)
end

-- Whether a whole payload is the node's own datagram behind a mark; if not, the other tunnel's message, and how many bytes
-- of padding that had. `block` gives the blocks of a sample.
function mask.open(block, payload)
    local sample = payload:sub(-SAMPLE)
    local mark = #payload >= SAMPLE and block(sample, 0):sub(1, MARK)
    if not mark then
        return false, payload, 0
    end
    if payload:sub(1, MARK) == mark then
        return true
    end
    if #payload > TRAILER then
        local trailer = xor(payload:sub(-TRAILER, -SAMPLE - 1), mark)
        local length = trailer:byte(7) * 256 + trailer:byte(8)
        if trailer:sub(1, 6) == "\0\0\0\0\0\0" and length > 0 and length < LARGE and length + TRAILER <= #payload then
            local message = lay_over(block, sample, payload:sub(1, -TRAILER - 1))
            return false, message:sub(1, length), #message - length
        end
    end
    local covered = #payload >= LARGE and HEAD or #payload - SAMPLE
    return false, lay_over(block, sample, payload:sub(1, covered)) .. payload:sub(covered + 1), 0
end

return mask
