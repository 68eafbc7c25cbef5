-- AES-256-GCM (FIPS 197, NIST SP 800-38D) and the mask of QUIC's header protection with it (RFC 9001 section 5.4.3), in
-- plain Lua. For reading captures: nothing here is safe against timing.

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end
local bits = dofile(directory .. "/bits.lua")
local bxor, rshift, band, rotate = bits.bxor, bits.rshift, bits.band, bits.lrotate
local byte, char = string.byte, string.char

-- The four bytes of a word, the most significant first.
local function bytes(word)
    local low = word % 0x10000
    local high = (word - low) / 0x10000
    local b, d = high % 256, low % 256
    return (high - b) / 256, b, (low - d) / 256, d
end

-- Words of a string, big-endian, of which it has whole ones.
local function words(text)
    local all = {}
    for at = 1, #text, 4 do
        local a, b, c, d = byte(text, at, at + 3)
        all[#all + 1] = a * 0x1000000 + b * 0x10000 + c * 0x100 + d
    end
    return all
end

local function text_of(a, b, c, d)
    local a0, a1, a2, a3 = bytes(a)
    local b0, b1, b2, b3 = bytes(b)
    local c0, c1, c2, c3 = bytes(c)
    return char(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, bytes(d))
end

-- The S-box, and the tables in which SubBytes and MixColumns are one: T0 of a byte is the column that it makes from the
-- first row, and T1, T2 and T3 are that from the others.
local sbox, T0, T1, T2, T3 = {}, {}, {}, {}, {}
do
    local function double(x)
        x = x * 2
        return x < 256 and x or bxor(x, 0x11b)
    end
    -- p runs through the powers of 3, q through those of its inverse.
    local p, q = 1, 1
    repeat
        p = bxor(p, double(p))
        q = bxor(q, q * 2 % 256)
        q = bxor(q, q * 4 % 256)
        q = bxor(q, q * 16 % 256)
        if q >= 128 then
            q = bxor(q, 9)
        end
        local turned = q * 0x101
        sbox[p] = band(bxor(turned, rshift(turned, 7), rshift(turned, 6), rshift(turned, 5), rshift(turned, 4), 0x63), 255)
    until p == 1
    sbox[0] = 0x63
    for x = 0, 255 do
        local s = sbox[x]
        local two = double(s)
        local column = two * 0x1000000 + s * 0x10000 + s * 0x100 + bxor(two, s)
        T0[x], T1[x], T2[x], T3[x] = column, rotate(column, 24), rotate(column, 16), rotate(column, 8)
    end
end

-- The sixty words of the round keys.
local function expand(key)
    local w = words(key)
    local function substitute(word)
        local a, b, c, d = bytes(word)
        return sbox[a] * 0x1000000 + sbox[b] * 0x10000 + sbox[c] * 0x100 + sbox[d]
    end
    local constant = 1
    for i = 9, 60 do
        local before = w[i - 1]
        if i % 8 == 1 then
            before = bxor(substitute(rotate(before, 8)), constant * 0x1000000)
            constant = constant * 2
        elseif i % 8 == 5 then
            before = substitute(before)
        end
        w[i] = bxor(w[i - 8], before)
    end
    return w
end

-- One block, four words in and out. The bytes are taken apart here: this is where the time goes, and a call for each would
-- take half of it.
local function encrypt(w, a, b, c, d)
    a, b, c, d = bxor(a, w[1]), bxor(b, w[2]), bxor(c, w[3]), bxor(d, w[4])
    local a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3, low, high
    for i = 5, 57, 4 do
        low = a % 0x10000
        high = (a - low) / 0x10000
        a1, a3 = high % 256, low % 256
        a0, a2 = (high - a1) / 256, (low - a3) / 256
        low = b % 0x10000
        high = (b - low) / 0x10000
        b1, b3 = high % 256, low % 256
        b0, b2 = (high - b1) / 256, (low - b3) / 256
        low = c % 0x10000
        high = (c - low) / 0x10000
        c1, c3 = high % 256, low % 256
        c0, c2 = (high - c1) / 256, (low - c3) / 256
        low = d % 0x10000
        high = (d - low) / 0x10000
        d1, d3 = high % 256, low % 256
        d0, d2 = (high - d1) / 256, (low - d3) / 256
        if i < 57 then
            a = bxor(T0[a0], T1[b1], T2[c2], T3[d3], w[i])
            b = bxor(T0[b0], T1[c1], T2[d2], T3[a3], w[i + 1])
            c = bxor(T0[c0], T1[d1], T2[a2], T3[b3], w[i + 2])
            d = bxor(T0[d0], T1[a1], T2[b2], T3[c3], w[i + 3])
        end
    end
    local function last(p, q, r, s, key)
        return bxor(sbox[p] * 0x1000000 + sbox[q] * 0x10000 + sbox[r] * 0x100 + sbox[s], key)
    end
    return last(a0, b1, c2, d3, w[57]), last(b0, c1, d2, a3, w[58]), last(c0, d1, a2, b3, w[59]),
        last(d0, a1, b2, c3, w[60])
end

-- Tables to multiply by H with: for each of the 32 nibbles of a block, and each of its 16 values, the product, in four
-- words. Entry 16·position + value.
local function multiples(h0, h1, h2, h3)
    local t = { {}, {}, {}, {} }
    local v = { h0, h1, h2, h3 }
    for position = 0, 31 do
        for bit = 3, 0, -1 do
            for word = 1, 4 do
                t[word][16 * position + 2 ^ bit] = v[word]
            end
            -- Times x: one bit to the right, and what falls out comes back as the polynomial.
            local out = v[4] % 2
            for word = 4, 2, -1 do
                v[word] = (v[word] - v[word] % 2) / 2 + v[word - 1] % 2 * 0x80000000
            end
            v[1] = (v[1] - v[1] % 2) / 2
            if out == 1 then
                v[1] = bxor(v[1], 0xe1000000)
            end
        end
        for word = 1, 4 do
            local of, at = t[word], 16 * position
            of[at] = 0
            for _, top in ipairs({ 2, 4, 8 }) do
                for rest = 1, top - 1 do
                    of[at + top + rest] = bxor(of[at + top], of[at + rest])
                end
            end
        end
    end
    return t
end

-- The entries of a word's eight nibbles, the first of which is at this position of the block.
local function nibbles(word, position)
    local a, b, c, d = bytes(word)
    local at = 16 * position
    local a1, b1, c1, d1 = a % 16, b % 16, c % 16, d % 16
    return at + (a - a1) / 16, at + 16 + a1, at + 32 + (b - b1) / 16, at + 48 + b1, at + 64 + (c - c1) / 16,
        at + 80 + c1, at + 96 + (d - d1) / 16, at + 112 + d1
end

-- GHASH of a text that is a multiple of 16 bytes.
local function ghash(t, text)
    local y = { 0, 0, 0, 0 }
    for at = 1, #text, 16 do
        local x = words(text:sub(at, at + 15))
        local a, b, c, d, e, f, g, h = nibbles(bxor(y[1], x[1]), 0)
        local i, j, k, l, m, n, o, p = nibbles(bxor(y[2], x[2]), 8)
        local q, r, s, u, v, w, z, A = nibbles(bxor(y[3], x[3]), 16)
        local B, C, D, E, F, G, H, I = nibbles(bxor(y[4], x[4]), 24)
        for word, of in ipairs(t) do
            y[word] = bxor(of[a], of[b], of[c], of[d], of[e], of[f], of[g], of[h], of[i], of[j], of[k], of[l], of[m],
                of[n], of[o], of[p], of[q], of[r], of[s], of[u], of[v], of[w], of[z], of[A], of[B], of[C], of[D], of[E],
                of[F], of[G], of[H], of[I])
        end
    end
    return y[1], y[2], y[3], y[4]
end

local cipher = {}

-- What is prepared once for a key of 32 bytes.
function cipher.key(text)
    return { rounds = expand(text) }
end

-- The tag of a ciphertext. The nonce has 12 bytes.
function cipher.tag(key, nonce, aad, sealed)
    key.multiples = key.multiples or multiples(encrypt(key.rounds, 0, 0, 0, 0))
    local padded = aad .. string.rep("\0", -#aad % 16) .. sealed .. string.rep("\0", -#sealed % 16)
    local y0, y1, y2, y3 = ghash(key.multiples, padded .. text_of(0, #aad * 8, 0, #sealed * 8))
    local n = words(nonce)
    local e0, e1, e2, e3 = encrypt(key.rounds, n[1], n[2], n[3], 1)
    return text_of(bxor(y0, e0), bxor(y1, e1), bxor(y2, e2), bxor(y3, e3))
end

-- The plaintext of a ciphertext without its tag.
function cipher.decrypt(key, nonce, sealed)
    local n, out = words(nonce), {}
    local padded = sealed .. string.rep("\0", -#sealed % 16)
    for at = 1, #padded, 16 do
        local s0, s1, s2, s3 = encrypt(key.rounds, n[1], n[2], n[3], (at - 1) / 16 + 2)
        local x = words(padded:sub(at, at + 15))
        out[#out + 1] = text_of(bxor(x[1], s0), bxor(x[2], s1), bxor(x[3], s2), bxor(x[4], s3))
    end
    return table.concat(out):sub(1, #sealed)
end

-- The mask of a sample of 16 bytes, of which four are needed.
function cipher.mask(key, sample)
    local s = words(sample)
    return text_of(encrypt(key.rounds, s[1], s[2], s[3], s[4])):sub(1, 4)
end

return cipher
