//! Names of interfaces that packets are copied to: `nf.mirror`.

/// The longest that the kernel has (`IFNAMSIZ`, without the zero at its end).
const LONGEST: usize = 15;

/// Why a name is none of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an interface has a name of 1 to {LONGEST} octets, without '/', ':' and spaces")]
pub struct NotAnInterface;

/// Takes what may be the name of an interface, as the kernel does.
///
/// # Errors
/// No interface can have it.
pub fn interface_name(name: &str) -> Result<&str, NotAnInterface> {
    let is_wrong = |character: char| matches!(character, '/' | ':' | '\0') || character.is_whitespace();
    let fits = (1..=LONGEST).contains(&name.len()) && name != "." && name != "..";
    if !fits || name.contains(is_wrong) {
        return Err(NotAnInterface);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_takes() {
        for name in ["mon0", "a", "wan-1.200", "enp0s31f6np0v15"] {
            assert_eq!(interface_name(name), Ok(name));
        }
        for name in ["", ".", "..", "a/b", "a:1", "a b", "a\tb", "a\0", "enp0s31f6np0v156"] {
            assert_eq!(interface_name(name), Err(NotAnInterface), "{name:?}");
        }
    }
}
