//! How large things may be: the same for all stores, so that what works in a file works in etcd.

/// How many keys a commit may write, and how many conditions it may have. etcd takes 128 by default.
pub const WRITES: usize = 100;
/// How many octets all keys and values of a commit may have together. etcd takes requests of 1.5 MiB by default.
pub const COMMIT_OCTETS: usize = 1024 * 1024;
/// How many octets all keys and values of a list may have together.
pub const LIST_OCTETS: usize = 64 * 1024 * 1024;
