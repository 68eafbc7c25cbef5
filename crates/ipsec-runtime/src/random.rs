//! The kernel's random numbers.

/// The kernel's generator. [`System::new`] has asked it once: later it does not fail.
pub struct System(());

impl System {
    /// Asks it for the first time.
    ///
    /// # Errors
    /// Where there is none, or it is not seeded.
    pub fn new() -> std::io::Result<Self> {
        getrandom::fill(&mut [0; 32]).map_err(std::io::Error::other)?;
        Ok(Self(()))
    }
}

impl ike::random::Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("it was asked before, and does not fail once it was seeded");
    }
}
