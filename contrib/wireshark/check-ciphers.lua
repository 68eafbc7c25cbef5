-- Holds the ciphers against the test vectors of docs/protocol-vectors.json, for the tests:
--
--   lua5.4 check-ciphers.lua FOLDER < cases
--
-- A case is a line: cipher, data key, header key, counter, inner packet, mask, datagram.

local folder = ...
local function load_cipher(name)
    return assert(loadfile(folder .. "/" .. name .. ".lua"))(folder)
end
local ciphers = { ["AES-256-GCM"] = load_cipher("aes_256_gcm"), ["ChaCha20-Poly1305"] = load_cipher("chacha20_poly1305") }

local function unhex(text)
    return (text:gsub("..", function(digits)
        return string.char(tonumber(digits, 16))
    end))
end

local count = 0
for line in io.lines() do
    local name, data, header, counter, inner, mask, datagram =
        line:match("^(%S+) (%x+) (%x+) (%d+) (%x*) (%x+) (%x+) $")
    local cipher, bytes = assert(ciphers[name], line), unhex(datagram)
    local nonce = string.rep("\0", 8) .. unhex(string.format("%08x", tonumber(counter)))
    local key, sealed = cipher.key(unhex(data)), bytes:sub(5, -17)
    assert(cipher.mask(cipher.key(unhex(header)), bytes:sub(5, 20)) == unhex(mask), "mask: " .. line)
    assert(cipher.decrypt(key, nonce, sealed) == unhex(inner), "plaintext: " .. line)
    assert(cipher.tag(key, nonce, "", sealed) == bytes:sub(-16), "tag: " .. line)
    assert(cipher.tag(key, nonce, "x", sealed) ~= bytes:sub(-16), "tag of other data: " .. line)
    count = count + 1
end
print(count .. " datagrams")
