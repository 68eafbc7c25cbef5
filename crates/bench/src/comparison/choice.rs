//! Which contenders there are, and the choice among them.

use crate::comparison::classic::Classic;
use crate::comparison::contender::{Contender, KNOWN, NONE};
use crate::comparison::kernel_wireguard::KernelWireGuard;
use crate::comparison::masked::Masked;
use crate::comparison::openvpn::OpenVpn;
use crate::comparison::results::Absence;
use crate::comparison::sidestep::Sidestep;
use crate::comparison::wireguard::WireGuard;
use lab::Error;
use lab::Lab;

/// No tunnel: the gateways and the router forward the inner networks.
struct Plain;

impl Contender for Plain {
    fn name(&self) -> &str {
        NONE
    }

    fn about(&self) -> String {
        "no tunnel: gateways and router forward the packets".into()
    }

    fn start(&mut self, _: &mut Lab, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn stop(&mut self, _: &mut Lab) {}

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        None
    }
}

/// All that there are, the two that are always measured first.
fn all(rotation: &str) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = vec![Box::new(Plain), Box::new(Sidestep::new(rotation))];
    all.extend(Sidestep::variants(rotation).into_iter().map(|variant| Box::new(variant) as _));
    all.push(Box::new(KernelWireGuard));
    all.extend(WireGuard::implementations().into_iter().map(|one| Box::new(one) as _));
    all.extend(Masked::kinds(rotation).into_iter().map(|one| Box::new(one) as _));
    all.push(Box::new(OpenVpn::default()));
    all.extend(Classic::kinds(rotation).into_iter().map(|one| Box::new(one) as _));
    all
}

/// The one of this name, if there is one.
pub(crate) fn named(name: &str, rotation: &str) -> Option<Box<dyn Contender>> {
    all(rotation).into_iter().find(|one| one.name() == name)
}

/// Who takes part.
pub(crate) struct Choice {
    pub(crate) contenders: Vec<Box<dyn Contender>>,
    /// Those that were left out, and why.
    pub(crate) left_out: Vec<Absence>,
}

/// Those that will be measured: no tunnel, Sidestep, and `against` or else what `quick` or the whole comparison has.
///
/// # Errors
/// When a name is unknown, or one that was asked for by name cannot run here.
pub(crate) fn choose(against: &[String], quick: bool, rotation: &str) -> Result<Choice, Error> {
    let all = all(rotation);
    let names: Vec<String> = all.iter().map(|one| one.name().to_owned()).collect();
    if let Some(unknown) = against.iter().find(|name| !names.contains(name)) {
        let names = names.join(", ");
        return Err(Error::Usage(format!(
            "--against {unknown}: there is no such contender; there are {names}"
        )));
    }
    let mut choice = Choice { contenders: Vec::new(), left_out: Vec::new() };
    for (index, one) in all.into_iter().enumerate() {
        let name = one.name().to_owned();
        let asked = against.contains(&name);
        let usual = against.is_empty() && (!quick || name == KNOWN);
        if index > 1 && !asked && !usual {
            continue;
        }
        match one.missing() {
            None => choice.contenders.push(one),
            Some(why) if asked => return Err(Error::Usage(format!("--against {name}: {why}"))),
            Some(why) => choice.left_out.push(Absence { what: name, why }),
        }
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = choose(&["wireguard-gone".into()], false, "10s").err().expect("an error").to_string();
        assert!(
            error.contains("wireguard-gone") && error.contains("boringtun, gotatun, wireguard-mask"),
            "{error}"
        );
    }

    #[test]
    fn no_tunnel_and_sidestep_are_always_there() {
        let choice = choose(&["sidestep-full".into()], true, "10s").expect("contenders");
        let names: Vec<&str> = choice.contenders.iter().map(|one| one.name()).collect();
        assert_eq!(names, [NONE, "sidestep", "sidestep-full"]);
    }

    #[test]
    fn names_are_short_enough_for_tables_and_differ() {
        let mut names: Vec<String> = all("10s").iter().map(|one| one.name().to_owned()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert!(names.len() == count && names.iter().all(|name| name.len() <= 22));
    }
}
