-- Listing 3.1 of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
        dmac = p:raw(0,6)
        smac = p:raw(6,6)
        type = p:raw(12,2)
        -- ...
end
