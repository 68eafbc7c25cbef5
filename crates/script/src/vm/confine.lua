-- Standard functions through which a script could get around its limits, made so that it cannot.

local exhausted, message = ...
local pcall0, xpcall0, error0, setmetatable0, load0 = pcall, xpcall, error, setmetatable, load
local rawget, type, select = rawget, type, select

-- What has been caught: an error of the budget goes on, any other is what the script may see of it, a string.
local function caught(ok, ...)
  if ok then return true, ... end
  if exhausted() then error0(..., 0) end
  local value = ...
  if type(value) == "userdata" then value = message(value) end
  return false, value
end

function pcall(callee, ...)
  return caught(pcall0(callee, ...))
end

function xpcall(callee, handler, ...)
  return caught(xpcall0(callee, function(value)
    if exhausted() then return value end
    if type(value) == "userdata" then value = message(value) end
    return handler(value)
  end, ...))
end

-- Finalizers run outside of the budget.
function setmetatable(value, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error0("setmetatable: packet scripts have no finalizers (__gc)", 2)
  end
  return setmetatable0(value, metatable)
end

-- Text only: bytecode is not checked by anybody.
function load(chunk, name, _, ...)
  if select("#", ...) == 0 then return load0(chunk, name, "t") end
  return load0(chunk, name, "t", (...))
end
