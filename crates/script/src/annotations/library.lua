---@meta
-- Annotations of the library of Sidestep's packet scripts, for the Lua language server (LuaLS). Nothing here runs.

---What becomes of a packet.
---@alias verdict integer

---The packet is discarded.
---@type verdict
NF_DROP = 0
---The packet goes on.
---@type verdict
NF_ACCEPT = 1
---The script keeps the packet: nobody gets it, unless it was redirected.
---@type verdict
NF_STOLEN = 2
---The packet goes to netfilter queue 0.
---@type verdict
NF_QUEUE = 3
---The packet goes through the hook again.
---@type verdict
NF_REPEAT = 4
---The next rule has the packet.
---@type verdict
XT_CONTINUE = 4294967295

---True where packets are handled, nil where deferred work is done.
---@type boolean?
IS_INTERRUPT = true

-- Views ---------------------------------------------------------------------------------------------------------------

---A place in a packet or byte array. `#view` is how many octets it has.
---@class sidestep.view
---@operator len: integer
local view = {}

---The view of what is within as this protocol: nil if the policy refuses it, or its header is not all there. Without a
---protocol, the payload field.
---@generic T
---@param protocol T
---@return T?
---@overload fun(self: sidestep.view): sidestep.raw
function view:data(protocol) end

---A part of the view.
---@param offset integer octets from its beginning
---@param length integer octets
---@return packet_raw
function view:raw(offset, length) end

---The value: of a whole view, its octets.
---@return sidestep.bytes
function view:get() end

---Writes the value; checksums of the packet follow.
---@param value string|integer|sidestep.bytes|sidestep.view as many octets as there are, or a number for each of them
function view:set(value) end

---Inserts zero octets; all views but the packet's own are gone.
---@param offset integer behind the IP header, and not within a transport header
---@param count integer even
function view:grow(offset, count) end

---Removes octets; all views but the packet's own are gone.
---@param offset integer behind the IP header, and not within a transport header
---@param count integer even
function view:shrink(offset, count) end

---The packet's flow, made if there is none; nil without an IP header, or where the table is full.
---@param flows? sidestep.flows
---@return sidestep.flow?
function view:flow(flows) end

---The stream of TCP that the packet belongs to, in its direction; nil if it is not TCP.
---@param streams? sidestep.streams
---@return sidestep.stream?
function view:stream(streams) end

---Sends the packet out through an interface, if this is the verdict that is returned.
---@param interface string
---@return verdict
function view:redirect(interface) end

---The VLAN of the packet's first tag, beside it or in the frame; nil if it has none. In the kernel.
---@return integer?
function view:vlan_id() end

---Puts a VLAN tag on a packet that has none beside it; all views but the packet's own are gone. In the kernel.
---@param id integer 0 to 4095
function view:push_vlan(id) end

---Takes the packet's first VLAN tag, and tells which VLAN it was; all views but the packet's own are gone. In the kernel.
---@return integer?
function view:pop_vlan() end

---A field of the kind int.
---@class sidestep.int: sidestep.view
local int = {}
---@return integer
function int:get() end
---@param value integer
function int:set(value) end

---A field of the kind bool.
---@class sidestep.bool: sidestep.view
local bool = {}
---@return boolean
function bool:get() end
---@param value boolean
function bool:set(value) end

---A field of the kind mac: "AA:BB:CC:DD:EE:FF".
---@class sidestep.mac: sidestep.view
local mac = {}
---@return string
function mac:get() end
---@param value string
function mac:set(value) end

---A field of the kind ipv4: "192.0.2.1".
---@class sidestep.ipv4: sidestep.view
local ipv4 = {}
---@return string
function ipv4:get() end
---@param value string
function ipv4:set(value) end

---A field of the kind ipv6, in the form of RFC 5952.
---@class sidestep.ipv6: sidestep.view
local ipv6 = {}
---@return string
function ipv6:get() end
---@param value string
function ipv6:set(value) end

---A field of the kind text.
---@class sidestep.text: sidestep.view
local text = {}
---@return string
function text:get() end
---@param value string as long as it is
function text:set(value) end

---A field of the kind raw.
---@class sidestep.raw: sidestep.view
local raw = {}

-- Byte arrays ---------------------------------------------------------------------------------------------------------

---Octets from index 0 on: a view of them, not a copy. Two joined by `..` are a byte array, one and a string a string.
---@class sidestep.bytes
---@field [integer] integer
---@operator len: integer
---@operator concat: string

---@class sidestep.library.bytes
bytes = {}

---@param length integer
---@return sidestep.bytes
function bytes.new(length) end

---With a zero at the end.
---@param text string
---@return sidestep.bytes
function bytes.new_from_string(text) end

---@param octets sidestep.bytes|sidestep.view|string
---@return sidestep.bytes
function bytes.copy(octets) end

---@param list (sidestep.bytes|sidestep.view|string)[]
---@return sidestep.bytes
function bytes.many_to_one(list) end

---The octets of a view: both share them.
---@param view sidestep.view
---@return sidestep.bytes
function bytes.to_bytes(view) end

---A view of the octets as this protocol: both share them.
---@generic T
---@param array sidestep.bytes
---@param protocol T
---@return T?
function bytes.to_packet(array, protocol) end

-- The library ---------------------------------------------------------------------------------------------------------

---@class sidestep.library.nf
nf = {}

---Milliseconds since a moment that stays the same.
---@return integer
function nf.get_time() end

---32 random bits.
---@return integer
function nf.get_random() end

---Logs a line: its values with a blank between them. A table in the last place has fields: names with integers, floats,
---booleans or strings, which `sidestep script logs --json` writes as JSON.
---@param ... any
function nf.log(...) end

---Writes the packet, as it is now, into a capture of the script host.
---@param packet packet_raw as the function gets it
---@param name string up to 32 of a-z, 0-9, _ and -, and .pcap or .pcapng behind it
function nf.capture(packet, name) end

---Sends a copy of the packet, as it is now, out through another interface; the packet goes on.
---@param packet packet_raw as the function gets it
---@param interface string while there is none of this name, or it is down, there is no copy
function nf.mirror(packet, interface) end

---Calls a function of the script later, in a state of its own.
---@param packet sidestep.view? what the call is about
---@param name string the function: it gets the number, a copy of what is handed on, and a copy of the packet
---@param id integer
---@param delay integer milliseconds
---@param handed? sidestep.view|sidestep.bytes
---@param protocol? sidestep.view
function nf.schedule(packet, name, id, delay, handed, protocol) end

---Sends a packet of the script's own.
---@param packet sidestep.view? the packet that it is made for
---@param octets sidestep.bytes|sidestep.view|string from an IP header on
function nf.create_packet(packet, octets) end

---Computes every checksum of a new packet.
---@param octets sidestep.bytes
---@param protocol packet_eth|packet_ip|packet_ip6 what it begins with
function nf.fix_checksums(octets, protocol) end

---What a key or value is: `text:N` has at most N octets.
---@alias sidestep.kind "int"|"bool"|"mac"|"ipv4"|"ipv6"|string
---@alias sidestep.value integer|boolean|string

---@class sidestep.table_options
---@field name string
---@field key sidestep.kind|sidestep.kind[]
---@field value? sidestep.kind|sidestep.kind[] int if it is not said; several are a record
---@field limit? integer entries at most, 65,536 if it is not said
---@field expires? integer milliseconds after an entry was written
---@field when_full? "refuse"|"oldest"
---@field persistent? boolean

---A table that all threads share, and that survives a reload.
---@param options sidestep.table_options
---@return sidestep.table
function nf.table(options) end

---Keys of several parts are given as several values, and so are records, values of several parts.
---@class sidestep.table
local table_ = {}

---@param ... sidestep.value
---@return sidestep.value? value nil if there is none
---@return sidestep.value? ... the other parts of a record
function table_:get(...) end

---@param ... sidestep.value the key, and then the value; nil removes the entry, unless it is a record
---@return boolean written false if the table is full
function table_:set(...) end

---Adds to an integer, or to all integers of a record at once, which are 0 where there are none.
---@param ... sidestep.value the key, and then how much to each
---@return integer? sum nil if the table is full
---@return integer? ... the other sums of a record
function table_:add(...) end

---@param ... sidestep.value
---@return boolean there
function table_:delete(...) end

---@return integer
function table_:count() end

---@class sidestep.counter_options
---@field name string
---@field persistent? boolean
---@field help? string what it counts, in one line: then metrics export it
---@field unit? "bytes"|"seconds"|"milliseconds"
---@field labels? table<string, string>
---@field metric? string its name in metrics, where that is not its own

---@param options string|sidestep.counter_options
---@return sidestep.counter
function nf.counter(options) end

---@class sidestep.counter
local counter = {}

---@param amount? integer 1 if it is not said; 0 or more where metrics export it
---@return integer sum
function counter:add(amount) end

---@return integer
function counter:get() end

---@class sidestep.histogram_options
---@field name string
---@field help string what is measured, in one line
---@field buckets integer[] the largest value of each
---@field persistent? boolean
---@field unit? "bytes"|"seconds"|"milliseconds"
---@field labels? table<string, string>
---@field metric? string its name in metrics, where that is not its own

---How often values were in which bucket: metrics export it.
---@param options sidestep.histogram_options
---@return sidestep.histogram
function nf.histogram(options) end

---@class sidestep.histogram
local histogram = {}

---@param value integer 0 or more
function histogram:observe(value) end

---How many values there were.
---@return integer
function histogram:count() end

---The sum of the values.
---@return integer
function histogram:sum() end

---@class sidestep.prefixes_options
---@field name string
---@field limit? integer
---@field persistent? boolean

---Prefixes of both IP versions, each with an integer.
---@param options sidestep.prefixes_options
---@return sidestep.prefixes
function nf.prefixes(options) end

---@class sidestep.prefixes
local prefixes = {}

---@param prefix string
---@param value? integer 1 if it is not said
---@return boolean written false if there is no room
function prefixes:add(prefix, value) end

---That of the longest prefix that holds the address.
---@param address string
---@return integer?
function prefixes:find(address) end

---@param prefix string
---@return boolean there
function prefixes:delete(prefix) end

---@return integer
function prefixes:count() end

---@class sidestep.flows_options
---@field name string
---@field limit? integer
---@field expires? integer milliseconds
---@field when_full? "refuse"|"oldest"

---A table of flows, for `p:flow(flows)`.
---@param options sidestep.flows_options
---@return sidestep.flows
function nf.flows(options) end

---@class sidestep.flows

---Both directions of a conversation, with integers of any name, at first 0.
---@class sidestep.flow
---@field [string] integer
local flow = {}

---@return boolean
function flow:is_reply() end

---@return boolean there
function flow:forget() end

---@class sidestep.streams_options
---@field name string
---@field limit? integer
---@field octets? integer of each
---@field memory? integer octets of all
---@field expires? integer milliseconds

---A table of streams, for `p:stream(streams)`.
---@param options sidestep.streams_options
---@return sidestep.streams
function nf.streams(options) end

---@class sidestep.streams

---One direction of a TCP connection, put together from its segments.
---@class sidestep.stream
---@operator len: integer
local stream = {}

---The octets so far, without a gap: a copy.
---@return sidestep.view
function stream:octets() end

---A view of them; nil if the header is not all there.
---@generic T: sidestep.view
---@param protocol T
---@return T?
function stream:data(protocol) end

---Why this segment must not reach a receiver that is to see the same as the script.
---@return "contradicts"|"early"|"unknown"|"full"|"urgent"|"checksum"|"cut"|nil
function stream:fault() end

---From now on it passes.
---@return verdict
function stream:accept() end

---From now on it does not pass.
---@return verdict
function stream:refuse() end

---The verdict that follows from an earlier decision.
---@return verdict?
function stream:decided() end

---Whether it is complete up to FIN, or was reset.
---@return boolean
function stream:has_ended() end

---@class sidestep.library.tls
tls = {}

---The name that a ClientHello asks for; "" for none, nil while it is not all there, false if the stream is something else.
---@param stream sidestep.stream
---@return string|false|nil
function tls.server_name(stream) end

---@class sidestep.library.http
http = {}

---The host that the first request is for, likewise.
---@param stream sidestep.stream
---@return string|false|nil
function http.host(stream) end

---@class sidestep.library.dns
dns = {}

---The messages of DNS over TCP that are all there.
---@param stream sidestep.stream
---@return packet_dns[]
function dns.messages(stream) end

---The name that a view of labels has, with dots.
---@param view sidestep.view
---@return string
function dns.name(view) end

---A step of what moves fields; all numbers are bits.
---@class sidestep.step
---@field field? string
---@field unit? integer
---@field minimum? integer
---@field plus? integer
---@field by? integer
---@field grows? string
---@field ends? boolean
---@field when? table

---@class sidestep.declaration
---@field name string
---@field about? string
---@field payload_field? string
---@field protocol_fields any[][] name, offset and length in bits, getter, setter
---@field has_protocol? boolean|table|string|function
---@field get_field_changes? sidestep.step|sidestep.step[]|string|function

---Declares a protocol, which becomes a global variable.
---@param declaration sidestep.declaration
---@return sidestep.view
function register_dynamic_protbuf(declaration) end

-- Tests: `local test = require "test"` --------------------------------------------------------------------------------

---@class sidestep.test
local test = {}

---Octets from hexadecimal digits.
---@param text string
---@return string
function test.hex(text) end

---A packet of octets that begin with an Ethernet header.
---@param octets string
---@return packet_raw
function test.frame(octets) end

---A packet of octets that begin with an IP header.
---@param octets string
---@return packet_raw
function test.ip(octets) end

---@param from string
---@param to string
---@param protocol integer
---@param payload string
---@return string octets
function test.ip_octets(from, to, protocol, payload) end

---@param from string
---@param sport integer
---@param to string
---@param dport integer
---@param payload? string
---@return packet_raw
function test.udp(from, sport, to, dport, payload) end

---@param from string
---@param sport integer
---@param to string
---@param dport integer
---@param flags? string such as "syn ack"
---@param payload? string
---@return packet_raw
function test.tcp(from, sport, to, dport, flags, payload) end

---The packets of a capture (pcap, pcapng) beside the script.
---@param name string
---@return packet_raw[]
function test.pcap(name) end

---A frame that no hook gives to scripts, as one that is not IP, has no verdict: nil, and why.
---@param packet packet_raw
---@param name? string|function the function, process_packet if none is named
---@return verdict
---@return string? why
function test.run(packet, name) end

---@param wanted verdict
---@param packet packet_raw
---@param name? string|function
function test.verdict(wanted, packet, name) end

---@param got any
---@param wanted any
---@param what? string
function test.equal(got, wanted, what) end

---@param packet packet_raw
function test.checksums(packet) end

---@param callback function
---@param text? string that the error must contain
function test.fails(callback, text) end

---@return string[] octets of packets, from their IP header on
function test.sent() end

---@return string? interface
function test.redirected() end

---@return { name: string, octets: string }[] captured packets, from their IP header on
function test.captured() end

---@return { interface: string, frame: string }[] copies, with their Ethernet header
function test.mirrored() end

---@return string[] lines
function test.log() end

---@param milliseconds integer
function test.advance(milliseconds) end
