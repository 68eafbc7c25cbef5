-- ChaCha20-Poly1305 (RFC 8439), the mask of QUIC's header protection with it (RFC 9001 section 5.4.4), in plain Lua: what
-- Lua 5.2 can do with numbers of 53 bits. For reading captures: nothing here is safe against timing.

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end
local bits = dofile(directory .. "/bits.lua")
local bxor, rotate = bits.bxor, bits.lrotate
local byte, char = string.byte, string.char

-- Words of a string, little-endian, of which it has whole ones.
local function words(text)
    local all = {}
    for at = 1, #text, 4 do
        local a, b, c, d = byte(text, at, at + 3)
        all[#all + 1] = a + b * 0x100 + c * 0x10000 + d * 0x1000000
    end
    return all
end

-- The four bytes of a word, little-endian.
local function bytes(word)
    local a = word % 256
    word = (word - a) / 256
    local b = word % 256
    word = (word - b) / 256
    local c = word % 256
    return a, b, c, (word - c) / 256
end

-- One column or diagonal of the state. Sums grow past 32 bits and are cut where they are rotated: 20 rounds make them no
-- greater than 2^38.
local function quarter(a, b, c, d)
    a = a + b
    d = rotate(bxor(d, a), 16)
    c = c + d
    b = rotate(bxor(b, c), 12)
    a = a + b
    d = rotate(bxor(d, a), 8)
    c = c + d
    return a, rotate(bxor(b, c), 7), c, d
end

-- The state after so many rounds, sixteen words.
local function rounds(count, k, n0, n1, n2, n3)
    local s0, s1, s2, s3 = 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574
    local s4, s5, s6, s7, s8, s9, s10, s11 = k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8]
    local s12, s13, s14, s15 = n0, n1, n2, n3
    for _ = 1, count / 2 do
        s0, s4, s8, s12 = quarter(s0, s4, s8, s12)
        s1, s5, s9, s13 = quarter(s1, s5, s9, s13)
        s2, s6, s10, s14 = quarter(s2, s6, s10, s14)
        s3, s7, s11, s15 = quarter(s3, s7, s11, s15)
        s0, s5, s10, s15 = quarter(s0, s5, s10, s15)
        s1, s6, s11, s12 = quarter(s1, s6, s11, s12)
        s2, s7, s8, s13 = quarter(s2, s7, s8, s13)
        s3, s4, s9, s14 = quarter(s3, s4, s9, s14)
    end
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15
end

-- A block of the key stream, sixteen words: of the key's words, a counter, and the nonce's three words; after twenty rounds
-- unless told otherwise.
local function block(k, counter, nonce, count)
    local s = { rounds(count or 20, k, counter, nonce[1], nonce[2], nonce[3]) }
    local initial = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8] }
    initial[13], initial[14], initial[15], initial[16] = counter, nonce[1], nonce[2], nonce[3]
    for i = 1, 16 do
        s[i] = (s[i] + initial[i]) % 4294967296
    end
    return s
end

local function text_of(all, first, last)
    local parts = {}
    for i = first, last do
        parts[#parts + 1] = char(bytes(all[i]))
    end
    return table.concat(parts)
end

-- The text XORed with the key stream from block 1 on.
local function apply(k, nonce, text)
    local out = {}
    local padded = text .. string.rep("\0", -#text % 64)
    for at = 1, #padded, 64 do
        local stream = block(k, (at - 1) / 64 + 1, nonce)
        local plain = words(padded:sub(at, at + 63))
        for i = 1, 16 do
            plain[i] = bxor(plain[i], stream[i])
        end
        out[#out + 1] = text_of(plain, 1, 16)
    end
    return table.concat(out):sub(1, #text)
end

-- A number of 128 bits in six limbs of 22 bits, the least first: 2^132 is 20 modulo 2^130 - 5, so that products of limbs
-- and their sums stay below 2^53. `high` is what stands above the sixteen bytes, for the last limb.
local function limbs(text, at, high)
    local b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15 = byte(text, at, at + 15)
    local l2, l5, l8, l13 = b2 % 64, b5 % 16, b8 % 4, b13 % 64
    return b0 + b1 * 0x100 + l2 * 0x10000,
        (b2 - l2) / 64 + b3 * 4 + b4 * 0x400 + l5 * 0x40000,
        (b5 - l5) / 16 + b6 * 16 + b7 * 0x1000 + l8 * 0x100000,
        (b8 - l8) / 4 + b9 * 64 + b10 * 0x4000,
        b11 + b12 * 0x100 + l13 * 0x10000,
        (b13 - l13) / 64 + b14 * 4 + b15 * 0x400 + high
end

-- What a limb has beyond its 22 bits, and the rest.
local function carry(limb)
    local rest = limb % 0x400000
    return (limb - rest) / 0x400000, rest
end

-- Poly1305 (RFC 8439 section 2.5) of a text that is a multiple of 16 bytes.
local function poly1305(key, text)
    local clamped = {}
    for i = 1, 16 do
        local value = byte(key, i)
        if i % 4 == 0 then
            value = value % 16
        elseif i % 4 == 1 and i > 1 then
            value = value - value % 4
        end
        clamped[i] = value
    end
    local r0, r1, r2, r3, r4, r5 = limbs(char((table.unpack or unpack)(clamped)), 1, 0)
    local q1, q2, q3, q4, q5 = 20 * r1, 20 * r2, 20 * r3, 20 * r4, 20 * r5
    local h0, h1, h2, h3, h4, h5 = 0, 0, 0, 0, 0, 0
    local c
    for at = 1, #text, 16 do
        local m0, m1, m2, m3, m4, m5 = limbs(text, at, 0x40000)
        h0, h1, h2, h3, h4, h5 = h0 + m0, h1 + m1, h2 + m2, h3 + m3, h4 + m4, h5 + m5
        local d0 = h0 * r0 + h1 * q5 + h2 * q4 + h3 * q3 + h4 * q2 + h5 * q1
        local d1 = h0 * r1 + h1 * r0 + h2 * q5 + h3 * q4 + h4 * q3 + h5 * q2
        local d2 = h0 * r2 + h1 * r1 + h2 * r0 + h3 * q5 + h4 * q4 + h5 * q3
        local d3 = h0 * r3 + h1 * r2 + h2 * r1 + h3 * r0 + h4 * q5 + h5 * q4
        local d4 = h0 * r4 + h1 * r3 + h2 * r2 + h3 * r1 + h4 * r0 + h5 * q5
        local d5 = h0 * r5 + h1 * r4 + h2 * r3 + h3 * r2 + h4 * r1 + h5 * r0
        c, h0 = carry(d0)
        c, h1 = carry(d1 + c)
        c, h2 = carry(d2 + c)
        c, h3 = carry(d3 + c)
        c, h4 = carry(d4 + c)
        c, h5 = carry(d5 + c)
        c, h0 = carry(h0 + c * 20)
        h1 = h1 + c
    end
    -- To the number below 2^130 - 5: what is above 2^130 comes back five times, twice for what that carries, then 5 is added
    -- to see whether it is beyond.
    for _ = 1, 2 do
        local above = (h5 - h5 % 0x100000) / 0x100000
        h5 = h5 % 0x100000
        c, h0 = carry(h0 + above * 5)
        c, h1 = carry(h1 + c)
        c, h2 = carry(h2 + c)
        c, h3 = carry(h3 + c)
        c, h4 = carry(h4 + c)
        h5 = h5 + c
    end
    local g0, g1, g2, g3, g4
    c, g0 = carry(h0 + 5)
    c, g1 = carry(h1 + c)
    c, g2 = carry(h2 + c)
    c, g3 = carry(h3 + c)
    c, g4 = carry(h4 + c)
    local g5 = h5 + c
    if g5 >= 0x100000 then
        h0, h1, h2, h3, h4, h5 = g0, g1, g2, g3, g4, g5 - 0x100000
    end
    -- Plus s, byte by byte.
    local number, tag, have, held, sum = { h0, h1, h2, h3, h4, h5 }, {}, 0, 0, 0
    local limb = 1
    for i = 1, 16 do
        if have < 8 then
            held, have, limb = held + number[limb] * 2 ^ have, have + 22, limb + 1
        end
        local low = held % 256
        held, have = (held - low) / 256, have - 8
        sum = sum + low + byte(key, 16 + i)
        tag[i] = char(sum % 256)
        sum = (sum - sum % 256) / 256
    end
    return table.concat(tag)
end

local function length(number)
    return char(bytes(number)) .. "\0\0\0\0"
end

local cipher = {}

-- What is prepared once for a key of 32 bytes.
function cipher.key(text)
    return words(text)
end

-- The tag of a ciphertext. The nonce has 12 bytes.
function cipher.tag(key, nonce, aad, sealed)
    local one_time = text_of(block(key, 0, words(nonce)), 1, 8)
    local padded = aad .. string.rep("\0", -#aad % 16) .. sealed .. string.rep("\0", -#sealed % 16)
    return poly1305(one_time, padded .. length(#aad) .. length(#sealed))
end

-- The plaintext of a ciphertext without its tag.
function cipher.decrypt(key, nonce, sealed)
    return apply(key, words(nonce), sealed)
end

-- The mask of a sample of 16 bytes, of which four are needed.
function cipher.mask(key, sample)
    local s = words(sample)
    return text_of(block(key, s[1], { s[2], s[3], s[4] }), 1, 1)
end

-- A block of the key stream of packets under a mask, whose sample has 16 bytes: after eight rounds (docs/protocol.md section
-- 9.6).
function cipher.masking(key, sample, number)
    local s = words(sample)
    return text_of(block(key, s[1] % 0x80000000 + number, { s[2], s[3], s[4] }, 8), 1, 16)
end

return cipher
