-- Files by name, in blocks, for all threads of a state and over a reload: they are in tables, not in Lua's memory. When
-- there are as many blocks as there may be, those that were written longest ago go first.

---@class blocks
---@field package blocks sidestep.table
---@field package files sidestep.table
---@field package numbers sidestep.counter
local blocks = {}
blocks.__index = blocks

local BLOCK = 1024
-- Number of the file, octets, and the time when it is no longer good.
local ENTRY = ">I8I8I8"
-- Names that are longer are not kept.
local NAME = 255

-- `limit` is in octets.
function blocks.new(name, limit)
  return setmetatable({
    blocks = nf.table {
      name = name .. " blocks", key = { "int", "int" }, value = "text:" .. BLOCK, limit = math.max(limit // BLOCK, 1),
      when_full = "oldest",
    },
    files = nf.table {
      name = name .. " files", key = "text:" .. NAME, value = "text:" .. ENTRY:packsize(), limit = 4096,
      when_full = "oldest",
    },
    numbers = nf.counter(name .. " files"),
  }, blocks)
end

-- The beginning of a file that is being written.
function blocks:begin()
  return { id = self.numbers:add(), size = 0, rest = "" }
end

-- Adds octets to it.
function blocks:write(file, octets)
  octets = file.rest .. octets
  local at = 1
  while #octets - at + 1 >= BLOCK do
    self.blocks:set(file.id, file.size // BLOCK, octets:sub(at, at + BLOCK - 1))
    file.size, at = file.size + BLOCK, at + BLOCK
  end
  file.rest = octets:sub(at)
end

-- Ends it: from now on the name stands for it.
function blocks:finish(file, name, good_until)
  if #name > NAME then return end
  self.blocks:set(file.id, file.size // BLOCK, file.rest)
  self.files:set(name, ENTRY:pack(file.id, file.size + #file.rest, good_until))
end

-- The number and the octets of a file, nil if there is none that is whole and good.
function blocks:find(name)
  if #name > NAME then return nil end
  local entry = self.files:get(name)
  ---@cast entry string?
  if not entry then return nil end
  local id, size, good_until = ENTRY:unpack(entry)
  -- The first block is the first to go.
  if nf.get_time() < good_until and self.blocks:get(id, 0) then return id, size end
  self.files:delete(name)
end

function blocks:forget(name)
  if #name <= NAME then self.files:delete(name) end
end

-- `count` octets of a file from `at` on, fewer at its end; nil if they are gone.
function blocks:read(id, at, count)
  local number, parts = at // BLOCK, {}
  for part = number, math.max(at + count - 1, at) // BLOCK do
    local block = self.blocks:get(id, part)
    if not block then return nil end
    parts[#parts + 1] = block
    if #block < BLOCK then break end
  end
  local from = at - number * BLOCK
  return table.concat(parts):sub(from + 1, from + count)
end

return blocks
