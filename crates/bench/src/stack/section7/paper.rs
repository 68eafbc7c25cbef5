//! What the paper measured, in 1996: its tables 1 to 5.

/// Sizes of tables 1 and 2 and of figure 8, with their latencies in milliseconds: TCP and UDP, IPv4 and IPv6.
pub(super) const LATENCY: [(usize, [f64; 4]); 6] = [
    (1, [1.27, 1.54, 0.93, 1.08]),
    (64, [1.45, 1.83, 1.13, 1.30]),
    (1024, [3.12, 3.62, 2.82, 3.06]),
    (2048, [5.34, 6.01, 5.00, 5.77]),
    (4096, [10.4, 11.9, 8.89, 9.90]),
    (8192, [19.0, 22.1, 17.0, 20.2]),
];
/// Table 3: bytes of a write and of a socket's buffer, KB/s of IPv4 and IPv6.
pub(super) const TCP: [(usize, usize, [f64; 2]); 9] = [
    (4096, 57_344, [780.0, 731.0]),
    (8192, 57_344, [778.0, 729.0]),
    (32_768, 57_344, [776.0, 730.0]),
    (4096, 32_768, [807.0, 763.0]),
    (8192, 32_768, [806.0, 758.0]),
    (32_768, 32_768, [811.0, 762.0]),
    (4096, 8192, [861.0, 775.0]),
    (8192, 8192, [858.0, 784.0]),
    (32_768, 8192, [863.0, 784.0]),
];
/// Table 4: bytes of a datagram, KB/s of IPv4 and IPv6.
pub(super) const UDP: [(usize, [f64; 2]); 2] = [(64, [537.0, 500.0]), (1024, [1144.0, 1125.0])];
/// Table 5: KB/s of TCP over IPv6, in the order of [`Security::ALL`](super::Security::ALL).
pub(super) const SECURITY: [f64; 4] = [775.0, 345.0, 192.0, 153.0];
