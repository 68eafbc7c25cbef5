//! Who takes part in the published plan.

use crate::comparison::choice;
use crate::comparison::contender::Contender;
use crate::experiment::plan::rotation;

/// Who takes part: the name here, that of the benchmark's contender, and whether its addresses rotate.
pub(super) const CONTENDERS: [(&str, &str, bool); 7] = [
    ("none", "none", false),
    ("reference", "classic-python", true),
    ("classic", "classic", true),
    ("classic-kernel", "classic-kernel", true),
    ("classic-encrypted", "classic-encrypted", true),
    ("sidestep", "sidestep", true),
    ("wireguard-go", "wireguard-go", false),
];

/// The contender of a name, rotating at the papers' interval.
pub(super) fn named(name: &str, papers: Option<u32>, full: bool) -> Option<Box<dyn Contender>> {
    let (_, known_as, _) = CONTENDERS.iter().find(|(one, ..)| *one == name)?;
    choice::named(known_as, &rotation(papers, full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::USUAL;

    #[test]
    fn everybody_is_one_of_the_benchmarks() {
        for (name, ..) in CONTENDERS {
            assert!(named(name, USUAL, false).is_some(), "{name}");
        }
    }
}
