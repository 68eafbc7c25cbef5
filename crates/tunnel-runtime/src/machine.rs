//! What the processor has, and random numbers.

/// Whether the processor seals AES-256-GCM without the help of tables.
pub(crate) fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// The kernel's generator, which it has been asked once: later it does not fail. The kernel mixes in what a hypervisor tells
/// it when the machine was cloned or restored.
pub(crate) fn entropy() -> std::io::Result<impl FnMut() -> [u8; 32] + Send> {
    seed()?;
    // Without, the node goes on with what it has.
    Ok(|| seed().unwrap_or_default())
}

/// 32 bytes from the kernel's generator.
pub(crate) fn seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
    Ok(seed)
}
