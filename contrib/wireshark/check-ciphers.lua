-- Holds the ciphers against the test vectors of docs/protocol-vectors.json, for the tests:
--
--   lua5.4 check-ciphers.lua FOLDER < cases
--
-- A case is a line: cipher, data key, header key, counter, inner packet, mask, datagram; or "mask", mask key, mark, message,
-- payload.

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

local mask = assert(loadfile(folder .. "/mask.lua"))(folder)

local function check_mask(line)
    local key, mark, message, payload = line:match("^mask (%x+) (%x+) (%x+) (%x+) $")
    local chacha = ciphers["ChaCha20-Poly1305"]
    local prepared, masked = chacha.key(unhex(key)), unhex(payload)
    local function block(sample, number)
        return chacha.masking(prepared, sample, number)
    end
    local own, found, padding = mask.open(block, masked)
    assert(not own and found == unhex(message), "message: " .. line)
    assert(padding == 0 or #found + padding + 24 == #masked, "padding: " .. line)
    assert(block(masked:sub(-16), 0):sub(1, 8) == unhex(mark), "mark: " .. line)
    assert(mask.open(block, unhex(mark) .. masked) == true, "own: " .. line)
end

local function check_datagram(line)
    local name, data, header, counter, inner, mask, datagram =
        line:match("^(%S+) (%x+) (%x+) (%d+) (%x*) (%x+) (%x+) $")
    local cipher, bytes = assert(ciphers[name], line), unhex(datagram)
    local nonce = string.rep("\0", 8) .. unhex(string.format("%08x", tonumber(counter)))
    local key, sealed = cipher.key(unhex(data)), bytes:sub(5, -17)
    assert(cipher.mask(cipher.key(unhex(header)), bytes:sub(5, 20)) == unhex(mask), "mask: " .. line)
    assert(cipher.decrypt(key, nonce, sealed) == unhex(inner), "plaintext: " .. line)
    assert(cipher.tag(key, nonce, "", sealed) == bytes:sub(-16), "tag: " .. line)
    assert(cipher.tag(key, nonce, "x", sealed) ~= bytes:sub(-16), "tag of other data: " .. line)
end

local count = 0
for line in io.lines() do
    (line:match("^mask ") and check_mask or check_datagram)(line)
    count = count + 1
end
print(count .. " cases")
