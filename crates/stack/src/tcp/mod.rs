//! TCP (RFC 9293).
