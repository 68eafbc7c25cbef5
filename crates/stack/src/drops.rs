//! Why packets go no further.

wire::drop_reasons! {
    /// The bytes are no frame or IP packet, or end before the packet does.
    Malformed = "malformed",
    /// The frame is for another host, or of a protocol that this host does not speak.
    NotForUs = "not_for_us",
    /// An address that a packet cannot come from or go to: multicast source, loopback on a link.
    ImpossibleAddress = "impossible_address",
    /// An extension header leaves the packet, or an option its header.
    MalformedHeader = "malformed_header",
    /// More extension headers, or options in one, than anybody needs.
    TooManyHeaders = "too_many_headers",
    /// Nobody here knows a next header, or a routing header's type.
    UnknownNextHeader = "unknown_next_header",
    /// An option that is not known wants the packet dropped (RFC 8200 §4.2).
    UnknownOption = "unknown_option",
    /// Nothing follows the headers (RFC 8200 §4.7).
    NoNextHeader = "no_next_header",
    /// The first fragment does not hold all headers (RFC 7112).
    IncompleteHeaderChain = "incomplete_header_chain",
    /// A fragment that fits no packet: not whole units of 8 octets, beyond 65,535, or without data.
    ImpossibleFragment = "impossible_fragment",
    /// Fragments overlap or contradict each other; their whole packet is dropped (RFC 5722).
    OverlappingFragment = "overlapping_fragment",
    /// No room for fragments, of this source or of all.
    FragmentLimit = "fragment_limit",
    /// Fragments were missing after 60 seconds, or had to make room.
    ReassemblyTimeout = "reassembly_timeout",
    /// A checksum is wrong or missing.
    Checksum = "checksum",
    /// A message of neighbor discovery that must not be believed (RFC 4861 §6.1, §7.1, §8.1, RFC 6980).
    InvalidDiscovery = "invalid_discovery",
    /// A redirect that did not come from the first hop in use.
    ForeignRedirect = "foreign_redirect",
    /// An ICMP error about a packet that we did not send.
    UnrelatedError = "unrelated_error",
    /// An ICMPv6 message of no use here.
    UnknownMessage = "unknown_message",
    /// Answers or errors were sent too often.
    RateLimit = "rate_limit",
    /// No socket has the destination port.
    NoSocket = "no_socket",
    /// A socket's or neighbor's queue is full.
    QueueFull = "queue_full",
    /// The neighbor did not answer.
    NoNeighbor = "no_neighbor",
    /// No room for another neighbor.
    NeighborLimit = "neighbor_limit",
    /// Nothing leads to the destination.
    NoRoute = "no_route",
    /// Security was missing, wrong, or forbids the packet.
    Security = "security",
}
