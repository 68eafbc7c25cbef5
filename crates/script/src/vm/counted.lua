-- Functions of C whose work grows with what they are given, while Lua counts one instruction: their work is counted here.
-- Calls to them are tail calls, so that their errors are told of the line that called.

local worked = ...
local type, tonumber, select, rawlen, max, min = type, tonumber, select, rawlen, math.max, math.min

-- From here on an octet that is copied is worth counting: there are many short strings.
local LONG = 1024
local OCTETS_PER_INSTRUCTION = 64

local function length(value)
  return (type(value) == "table" or type(value) == "string") and rawlen(value) or 0
end

-- Entries from one to another, as far as these are numbers: if not, the function says so.
local function entries(first, last)
  return max((tonumber(last) or 0) - (tonumber(first) or 0), 0)
end

local insert, remove, move, sort, concat, unpack =
  table.insert, table.remove, table.move, table.sort, table.concat, table.unpack

function table.insert(list, ...)
  if select("#", ...) > 1 then worked(length(list)) end
  return insert(list, ...)
end

function table.remove(list, ...)
  if select("#", ...) > 0 then worked(entries((...), length(list))) end
  return remove(list, ...)
end

function table.move(list, first, last, ...)
  worked(entries(first, last))
  return move(list, first, last, ...)
end

-- Comparisons by the script are its own instructions.
function table.sort(list, ...)
  worked(16 * length(list))
  return sort(list, ...)
end

function table.concat(list, separator, first, last)
  worked(entries(first or 1, last or length(list)))
  return concat(list, separator, first, last)
end

function table.unpack(list, first, last)
  worked(entries(first or 1, last or length(list)))
  return unpack(list, first, last)
end

local rep, sub = string.rep, string.sub

function string.rep(subject, count, separator)
  worked((length(subject) + length(separator)) * max(tonumber(count) or 0, 0) / OCTETS_PER_INSTRUCTION)
  return rep(subject, count, separator)
end

function string.sub(subject, first, last)
  local long = length(subject)
  if long >= LONG then
    local from, to = tonumber(first) or 1, tonumber(last) or -1
    if from < 0 then from = long + from end
    if to < 0 then to = long + to end
    worked(entries(max(from, 0), min(to, long)) / OCTETS_PER_INSTRUCTION)
  end
  return sub(subject, first, last)
end

for _, name in ipairs { "lower", "upper", "reverse" } do
  local own = string[name]
  string[name] = function(subject, ...)
    if length(subject) >= LONG then worked(length(subject) / OCTETS_PER_INSTRUCTION) end
    return own(subject, ...)
  end
end
