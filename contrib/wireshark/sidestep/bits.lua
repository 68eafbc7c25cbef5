-- Operations on 32-bit words: band, bxor (of any number of words), lrotate, rshift.
--
-- Lua 5.2, which Wireshark has until 4.2, has a library for it; later versions have operators, which 5.2 cannot read.

if bit32 then
    return bit32
end
return load([[
    local bits = {}
    function bits.band(a, b) return a & b end
    function bits.rshift(a, n) return (a & 0xffffffff) >> n end
    function bits.lrotate(a, n)
        a = a & 0xffffffff
        return (a << n | a >> 32 - n) & 0xffffffff
    end
    -- Five words are what a column of AES has: they do without a loop.
    function bits.bxor(a, b, c, d, e, ...)
        local result = a ~ b
        if e then
            result = result ~ c ~ d ~ e
            for _, word in ipairs({ ... }) do
                result = result ~ word
            end
            return result
        end
        return result ~ (c or 0) ~ (d or 0)
    end
    return bits
]])()
