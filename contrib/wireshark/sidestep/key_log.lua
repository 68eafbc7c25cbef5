-- The key log that `sidestep up --keylog FILE` writes (docs/operations.md, "Key log"), read as it grows.
--
-- A line that is malformed, or of a kind that is not known here, is passed over and counted.

local KeyLog = {}
KeyLog.__index = KeyLog

local SECRET = string.rep("%x", 64)

-- A log without a file, or with one that need not be there yet.
function KeyLog.new(path)
    local log = { path = path, at = 0, passed_over = 0 }
    -- Sessions by their name; contexts by session, sender and number; envelopes by their nonce; lanes by their ports, and
    -- by port and address of each endpoint.
    log.sessions, log.contexts, log.envelopes, log.lanes, log.endpoints = {}, {}, {}, {}, {}
    -- Lanes by session, sender and number.
    log.named = {}
    return setmetatable(log, KeyLog)
end

-- A key of `lanes`: which two ports, in this order.
function KeyLog.ports(from, to)
    return from * 65536 + to
end

local function unhex(text)
    return (text:gsub("..", function(digits)
        return string.char(tonumber(digits, 16))
    end))
end

-- The sixteen bytes of an IPv6 address as text, or nil.
local function address(text)
    local head, tail = text, nil
    local gap = text:find("::", 1, true)
    if gap then
        head, tail = text:sub(1, gap - 1), text:sub(gap + 2)
    end
    local function groups(part)
        local bytes = {}
        for group in part:gmatch("[^:]+") do
            local value = group:match("^%x%x?%x?%x?$") and tonumber(group, 16)
            if not value then
                local a, b, c, d = group:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
                for _, digit in ipairs({ a or 256, b, c, d }) do
                    if tonumber(digit) > 255 then
                        return nil
                    end
                    bytes[#bytes + 1] = string.char(tonumber(digit))
                end
            else
                bytes[#bytes + 1] = string.char((value - value % 256) / 256, value % 256)
            end
        end
        return table.concat(bytes)
    end
    local first, last = groups(head), groups(tail or "")
    if not first or not last or #first + #last > 16 or not gap and #first < 16 then
        return nil
    end
    return first .. string.rep("\0", 16 - #first - #last) .. last
end
KeyLog.address = address

local function port(text)
    local value = text:match("^%d+$") and tonumber(text)
    return value and value < 65536 and value or nil
end

local readers = {}

function readers.SESSION(log, f)
    if #f ~= 3 or not f[1]:match("^%x+$") or not f[2]:match("^[LH]$") then
        return false
    end
    log.sessions[f[1]] = { own = f[2], peer = f[3] }
    return true
end

function readers.LANE(log, f)
    if #f ~= 10 then
        return false
    end
    local from, from_port, to, to_port = address(f[5]), port(f[6]), address(f[7]), port(f[8])
    local whole = f[1]:match("^%x+$") and f[2]:match("^[LH]$") and f[3]:match("^%d+$") and #f[3] < 16
        and from and from_port and to and to_port
        and f[9]:match("^" .. SECRET .. "$") and f[10]:match("^" .. SECRET .. "$")
    if not whole or f[4] ~= "AES-256-GCM" and f[4] ~= "ChaCha20-Poly1305" then
        return false
    end
    local lane = { session = f[1], sender = f[2], number = f[3], cipher = f[4], from = from, to = to, seen = {} }
    lane.data, lane.header = unhex(f[9]), unhex(f[10])
    local ports, name = KeyLog.ports(from_port, to_port), f[1] .. f[2] .. f[3]
    log.lanes[ports] = log.lanes[ports] or {}
    local others = log.lanes[ports]
    for at, other in ipairs(others) do
        -- The same from the log of the other end, or a line that comes twice.
        if other.from == from and other.to == to and other.data == lane.data then
            return true
        end
        if other.from == from and other.to == to then
            others[at], log.named[name] = lane, lane
            return true
        end
    end
    others[#others + 1], log.named[name] = lane, lane
    for _, endpoint in ipairs({ { from_port, from }, { to_port, to } }) do
        local number, at = endpoint[1], endpoint[2]
        log:found_port(number)
        log.endpoints[number] = log.endpoints[number] or {}
        log.endpoints[number][at] = lane
    end
    return true
end

function readers.MASK(log, f)
    local lane = #f == 4 and log.named[f[1] .. f[2] .. f[3]]
    if not lane or not f[4]:match("^" .. SECRET .. "$") then
        return false
    end
    lane.mask = unhex(f[4])
    return true
end

function readers.CONTEXT(log, f)
    local from, to = f[4] and address(f[4]), f[5] and address(f[5])
    if #f ~= 5 or not f[1]:match("^%x+$") or not f[2]:match("^[LH]$") or not port(f[3]) or not from or not to then
        return false
    end
    log.contexts[f[1] .. f[2] .. f[3]] = { from = from, to = to }
    return true
end

function readers.ENVELOPE(log, f)
    local whole = #f == 4 and f[1]:match("^" .. string.rep("%x", 48) .. "$") and f[2]:match("^%x+$") and #f[2] % 2 == 0
        and f[3]:match("^" .. SECRET .. "$")
    if not whole then
        return false
    end
    log.envelopes[unhex(f[1])] = { aad = unhex(f[2]), key = unhex(f[3]), peer = f[4] }
    return true
end

-- Told of each port that an endpoint of a lane has.
function KeyLog:found_port(_) end

-- Reads what the file has beyond what was read before. Lines that are not whole wait. Returns what is in the way, or
-- nothing.
function KeyLog:update()
    local file, problem = io.open(self.path, "rb")
    if not file then
        return problem
    end
    -- A folder can be opened, too.
    local _, unreadable = file:read(0)
    if unreadable then
        file:close()
        return unreadable
    end
    local size = file:seek("end")
    if size < self.at then
        -- Another file of that name.
        self.at = 0
    end
    if size > self.at then
        file:seek("set", self.at)
        local new = file:read(size - self.at) or ""
        local whole = new:match("^.*\n") or ""
        self.at = self.at + #whole
        for line in whole:gmatch("[^\r\n]+") do
            self:read(line)
        end
    end
    file:close()
end

-- Takes a line.
function KeyLog:read(line)
    if line:match("^#") then
        return
    end
    local fields = {}
    for field in line:gmatch("[^ ]+") do
        fields[#fields + 1] = field
    end
    local reader = readers[table.remove(fields, 1)]
    if not reader or not reader(self, fields) then
        self.passed_over = self.passed_over + 1
    end
end

-- The keys of a lane for a datagram between two ports: those with these addresses; or else those of the only lane with these
-- ports, as the path may translate prefixes. The second result says whether the addresses are the lane's.
function KeyLog:lane(ports, from, to)
    local all = self.lanes[ports]
    if not all then
        return nil
    end
    for _, lane in ipairs(all) do
        if lane.from == from and lane.to == to then
            return lane, true
        end
    end
    return all[1], false
end

return KeyLog
