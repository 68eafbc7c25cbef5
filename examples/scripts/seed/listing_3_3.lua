-- Listing 3.3, within the function of listing 3.1, of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
        dmac = p:raw(0,6)
        -- ...
        dmac:set(0xFF)
        -- ...
end
