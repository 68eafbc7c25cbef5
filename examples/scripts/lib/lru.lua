-- Values by key, of a limited size in all: those that were used longest ago go first.

---@class lru
---@field package limit integer
---@field package total integer
---@field package entries table<any, table>
---@field package newest? table
---@field package oldest? table
local lru = {}
lru.__index = lru

-- `limit` is in the unit of the sizes that put() is given.
function lru.new(limit)
  return setmetatable({ limit = limit, total = 0, entries = {} }, lru)
end

local function unlink(self, entry)
  if entry.newer then entry.newer.older = entry.older else self.newest = entry.older end
  if entry.older then entry.older.newer = entry.newer else self.oldest = entry.newer end
  entry.newer, entry.older = nil, nil
end

local function link(self, entry)
  entry.older, self.newest = self.newest, entry
  if entry.older then entry.older.newer = entry else self.oldest = entry end
end

function lru:get(key)
  local entry = self.entries[key]
  if not entry then return nil end
  unlink(self, entry)
  link(self, entry)
  return entry.value
end

function lru:delete(key)
  local entry = self.entries[key]
  if not entry then return end
  unlink(self, entry)
  self.entries[key] = nil
  self.total = self.total - entry.size
end

-- False if the value alone is larger than the limit.
function lru:put(key, value, size)
  self:delete(key)
  if size > self.limit then return false end
  while self.total + size > self.limit do self:delete(self.oldest.key) end
  local entry = { key = key, value = value, size = size }
  self.entries[key] = entry
  self.total = self.total + size
  link(self, entry)
  return true
end

return lru
