//! The shape of `[nat64]`.

use crate::key::Absent::Default;
use crate::section::section;

section! {
    /// `[nat64]`, as it stands in the file.
    Nat64Table = "[nat64]" {
        /// Where hosts find IPv4: its addresses are in this prefix, a /96, /64, /56, /48, /40 or /32, at the places of RFC
        /// 6052 section 2.2. The well-known one is what DNS64 of others makes, too; one of your own is a part of your prefix
        /// that no network has. Networks advertise it (RFC 8781), unless they have a `nat64` of their own.
        prefix: String = Default(r#""64:ff9b::/96""#);
        /// Private addresses by which the gateway knows these hosts, each one. They are seen nowhere else, but the gateway
        /// reaches nobody there. /12 to /26; its hosts are as many as it has addresses, and each takes 21 bytes of memory.
        pool: String = Default(r#""198.18.0.0/16""#);
    }
}
