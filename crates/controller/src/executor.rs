//! Where futures run, for who has no executor of his own.

use std::io;

use tokio::runtime::Builder;

/// Waits for one thing, with this thread.
///
/// # Errors
/// If the kernel has no executor's means.
pub fn block_on<T>(what: impl Future<Output = T>) -> io::Result<T> {
    Ok(Builder::new_current_thread().enable_all().build()?.block_on(what))
}

/// Waits for what serves many, with as many threads as there are processors.
///
/// # Errors
/// If the kernel has no executor's means.
pub fn block_on_many<T>(what: impl Future<Output = T>) -> io::Result<T> {
    Ok(Builder::new_multi_thread().enable_all().build()?.block_on(what))
}
