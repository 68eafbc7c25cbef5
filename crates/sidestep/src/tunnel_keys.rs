//! `genkey`, `pubkey`, `genpsk`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use mt6d::keys::{PresharedKey, PrivateKey};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::terminal::print;

/// More than a key and its newline are not read from standard input.
const LONGEST: u64 = 4096;

pub(crate) fn generate_private() -> Result<(), Failure> {
    let key = PrivateKey::from_bytes(*random()?);
    print_secret(&key.to_base64())
}

pub(crate) fn generate_preshared() -> Result<(), Failure> {
    print_secret(&preshared(random)?)
}

/// A new key, and the public one that belongs to it.
pub(crate) fn new_private() -> Result<(Zeroizing<String>, String), Failure> {
    let key = PrivateKey::from_bytes(*random()?);
    Ok((key.to_base64(), key.public().to_string()))
}

/// A key that no configuration takes for one in another notation: where the secret is IKE's, `0x` and `0s` begin those.
fn preshared(
    mut random: impl FnMut() -> Result<Zeroizing<[u8; 32]>, Failure>,
) -> Result<Zeroizing<String>, Failure> {
    loop {
        let key = PresharedKey::from_bytes(*random()?).to_base64();
        if !key.starts_with('0') {
            return Ok(key);
        }
    }
}

pub(crate) fn public_of_stdin() -> Result<(), Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = io::stdin().lock().take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| Failure::Message(format!("cannot read standard input: {error}")))?;
    let key: PrivateKey =
        text.parse().map_err(|error| Failure::Message(format!("standard input is {error}")))?;
    print(format_args!("{}\n", key.public()))
}

fn random() -> Result<Zeroizing<[u8; 32]>, Failure> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut_slice())
        .map_err(|error| Failure::Message(format!("the kernel gives no randomness: {error}")))?;
    Ok(bytes)
}

/// Prints a secret.
fn print_secret(key: &str) -> Result<(), Failure> {
    warn_if_open();
    print(format_args!("{key}\n"))
}

/// Warns if what is printed goes to a file that others can read.
pub(crate) fn warn_if_open() {
    let metadata = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    if metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o077 != 0) {
        let _ = writeln!(
            io::stderr(),
            "sidestep: warning: others can read the file that this key is written to: \
             run chmod 600 on it, and next time `umask 077` first"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preshared_key_begins_like_no_other_notation() {
        // In base64 these begin with "0x", "0s" and "Ax".
        let mut draws = [[0xd3, 0x10], [0xd2, 0xc0], [0x03, 0x10]].into_iter();
        let key = preshared(|| {
            let mut bytes = Zeroizing::new([0; 32]);
            bytes[..2].copy_from_slice(&draws.next().expect("a third one at most"));
            Ok(bytes)
        });
        assert!(key.is_ok_and(|key| key.starts_with("Ax")));
    }
}
