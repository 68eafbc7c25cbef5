-- string.find, match, gmatch and gsub, on a matcher whose steps count (pattern.rs).

local seek, plain, is_plain, copied, wrong = ...
local type, tostring, tonumber, select = type, tostring, tonumber, select
local sub, byte, format, concat, tointeger = string.sub, string.byte, string.format, table.concat, math.tointeger

local function argument(value, at, name, wanted)
  local got = value == nil and "no value" or type(value)
  wrong(format("bad argument #%d to '%s' (%s expected, got %s)", at, name, wanted, got))
end

local function text(value, at, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  argument(value, at, name, "string")
end

local function integer(value, default, at, name)
  if value == nil then return default end
  local number = (type(value) == "number" or type(value) == "string") and tonumber(value)
  if not number then argument(value, at, name, "number") end
  local whole = tointeger(number)
  if not whole then
    wrong(format("bad argument #%d to '%s' (number has no integer representation)", at, name))
  end
  return whole
end

-- Octets before the place where a search begins.
local function offset(subject, init, name)
  init = integer(init, 1, 3, name)
  if init > 0 then return init - 1 end
  if init == 0 or init < -#subject then return 0 end
  return #subject + init
end

local function found(start, finish, ...)
  if start then return start + 1, finish, ... end
  return nil
end

function string.find(subject, pattern, init, is_text)
  subject, pattern = text(subject, 1, "find"), text(pattern, 2, "find")
  local from = offset(subject, init, "find")
  if from > #subject then return nil end
  if is_text or is_plain(pattern) then return found(plain(subject, pattern, from)) end
  return found(seek(subject, pattern, from, nil, true, false))
end

local function captures(start, _, ...)
  if start then return ... end
  return nil
end

function string.match(subject, pattern, init)
  subject, pattern = text(subject, 1, "match"), text(pattern, 2, "match")
  local from = offset(subject, init, "match")
  if from > #subject then return nil end
  return captures(seek(subject, pattern, from, nil, true, true))
end

function string.gmatch(subject, pattern, init)
  subject, pattern = text(subject, 1, "gmatch"), text(pattern, 2, "gmatch")
  local from, last = offset(subject, init, "gmatch"), nil
  local function step(start, finish, ...)
    if not start then return nil end
    from, last = finish, finish
    return ...
  end
  return function()
    if from > #subject then return nil end
    return step(seek(subject, pattern, from, last, false, true))
  end
end

-- A replacement in which `%1` and its like stand for captures.
local function filled(with, whole, ...)
  local parts, from = {}, 0
  while true do
    local at = plain(with, "%", from)
    if not at then break end
    parts[#parts + 1] = sub(with, from + 1, at)
    local digit = byte(with, at + 2)
    if digit == 37 then
      parts[#parts + 1] = "%"
    elseif digit == 48 then
      parts[#parts + 1] = whole
    elseif digit and digit >= 49 and digit <= 57 then
      if digit - 48 > select("#", ...) then wrong(format("invalid capture index %%%d", digit - 48)) end
      parts[#parts + 1] = tostring((select(digit - 48, ...)))
    else
      wrong("invalid use of '%' in replacement string")
    end
    from = at + 2
  end
  parts[#parts + 1] = sub(with, from + 1)
  return concat(parts)
end

local function replacement(with, kind, whole, ...)
  if kind == "string" then return filled(with, whole, ...) end
  local value
  if kind == "function" then value = with(...) else value = with[(...)] end
  if not value then return whole, true end
  kind = type(value)
  if kind == "number" then return tostring(value) end
  if kind ~= "string" then wrong(format("invalid replacement value (a %s)", kind)) end
  return value
end

function string.gsub(subject, pattern, with, most)
  subject, pattern = text(subject, 1, "gsub"), text(pattern, 2, "gsub")
  local kind = type(with)
  if kind == "number" then
    with, kind = tostring(with), "string"
  elseif kind ~= "string" and kind ~= "function" and kind ~= "table" then
    argument(with, 3, "gsub", "string/function/table")
  end
  most = integer(most, #subject + 1, 4, "gsub")
  local anchored = byte(pattern) == 94
  local parts, count, from, last, changed = {}, 0, 0, nil, false
  -- Octets before `from` are in the parts already.
  local function step(start, finish, ...)
    if not start then return false end
    count = count + 1
    local whole = sub(subject, start + 1, finish)
    local value, same = replacement(with, kind, whole, ...)
    changed = changed or not same
    parts[#parts + 1] = sub(subject, from + 1, start)
    parts[#parts + 1] = value
    copied(finish - from + #value)
    from, last = finish, finish
    return not anchored
  end
  while count < most and step(seek(subject, pattern, from, last, true, true)) do end
  if not changed then return subject, count end
  parts[#parts + 1] = sub(subject, from + 1)
  local result = concat(parts)
  copied(#result)
  return result, count
end
