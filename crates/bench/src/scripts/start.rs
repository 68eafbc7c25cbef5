//! How each contender is set to work.

use std::path::Path;
use std::process::{Command, Stdio};

use super::job::{Job, LOADER, Part, Peer};
use super::scene::{Limit, Scene};
use lab::Error;
use lab::command::{check, find};
use lab::traffic::wait_listening;

/// What is on the line of a script that says how much is let through.
const SCRIPTS_LIMIT: &str = "local RATE, BURST = 50, 100";

/// One loading of a script: function, hook, interface, and which packets.
type Load = (&'static str, &'static str, &'static str, &'static str);

/// What of this is not here, and how to install it.
pub(super) fn missing(peer: Peer) -> Option<String> {
    let is_there = |needed: &&str| match needed.strip_prefix('/') {
        Some(_) => Path::new(needed).exists(),
        None => find(needed).is_some(),
    };
    let needed = peer.needs().iter().find(|needed| !is_there(needed))?;
    Some(format!("`{needed}` is not installed: scripts/setup peers"))
}

impl Scene {
    pub(super) fn contend(&mut self) -> Result<(), Error> {
        let Part::Does(texts) = self.peer.part(self.job) else { return Ok(()) };
        let Limit { rate, burst } = self.limit;
        for (name, text) in texts {
            let text = match self.peer {
                Peer::C | Peer::CXdp => (*text).to_owned(),
                _ => text
                    .replace(SCRIPTS_LIMIT, &format!("local RATE, BURST = {rate}, {burst}"))
                    .replace("RATE/", &format!("{rate}/"))
                    .replace("BURST packets", &format!("{burst} packets"))
                    .replace("count BURST", &format!("count {burst}"))
                    .replace("DIRECTORY", &self.directory.display().to_string()),
            };
            self.file(name, &text)?;
        }
        match self.peer {
            Peer::None => Ok(()),
            Peer::ScriptKernel | Peer::ScriptXdp | Peer::ScriptBoth | Peer::ScriptUser => {
                self.script(texts.first().map_or("", |(name, _)| name))
            }
            Peer::Nftables => self.nftables(),
            Peer::C | Peer::CXdp => self.c(),
            Peer::Suricata => self.suricata(),
            Peer::Haproxy => self.haproxy(),
        }
    }

    fn script(&mut self, file: &str) -> Result<(), Error> {
        let mut command = self.beside(&self.program)?;
        command.args(["script", "serve"]);
        self.spawn(command, "listening")?;
        let tier = match self.peer {
            Peer::ScriptUser => "user",
            Peer::ScriptBoth => "both",
            _ => "kernel",
        };
        let loads: &[Load] = match self.job {
            Job::Drop | Job::Limit | Job::Sni => &[("process_packet", "ingress", "lan", "")],
            Job::Dns => &[("process_packet", "ingress", "lan", "udp dport 53")],
            Job::Nat => &[
                ("snat", "egress", "wan", "ip6 saddr fd00::2"),
                ("dnat", "ingress", "wan", "ip6 daddr 2001:db8::1"),
            ],
            Job::Balance => {
                &[("process_packet", "ingress", "lan", ""), ("process_packet", "egress", "lan", "")]
            }
        };
        let file = self.directory.join(file);
        for (function, hook, interface, rule) in loads {
            let mut command = self.gateway.command(&self.program)?;
            command.args(["script", "load"]).arg(&file).args(["--function", function, "--hook", hook]);
            command.args(["--dev", interface, "--tier", tier]);
            if !rule.is_empty() {
                command.args(["--match", rule]);
            }
            if self.peer == Peer::ScriptXdp {
                command.arg("--xdp");
            }
            check(command.stdin(Stdio::null()))?;
        }
        if self.job == Job::Drop {
            let list = self.prefixes("list.csv", ",1")?;
            let mut command = self.gateway.command(&self.program)?;
            check(command.args(["script", "table", "load", "blocked"]).arg(list).stdin(Stdio::null()))?;
        }
        Ok(())
    }

    fn nftables(&self) -> Result<(), Error> {
        let rules = self.directory.join(format!("{}.nft", self.job.name()));
        check(self.gateway.command("nft")?.arg("-f").arg(rules))?;
        if self.job == Job::Drop {
            let list = self.prefixes("list.txt", ",")?;
            let list = std::fs::read_to_string(&list).map_err(|source| Error::file(list, source))?;
            self.gateway.nft(&format!("add element netdev peer blocked6 {{ {list} }}\n"))?;
        }
        Ok(())
    }

    fn c(&mut self) -> Result<(), Error> {
        let Limit { rate, burst } = self.limit;
        let (object, loader) = (self.directory.join("job.o"), self.directory.join("load"));
        let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let limits = [format!("-DRATE={rate}ull"), format!("-DBURST={burst}ull")];
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-g", "-target", "bpf", &headers]).args(limits).arg("-c");
        check(clang.arg(self.directory.join(format!("{}.c", self.job.name()))).arg("-o").arg(&object))?;
        let mut clang = Command::new("clang");
        check(clang.arg("-O2").arg(self.directory.join(LOADER)).arg("-o").arg(&loader).arg("-lbpf"))?;
        let mut command = self.beside(&loader)?;
        command.arg(&object);
        if self.job == Job::Drop {
            command.arg(format!("list={}", self.prefixes("list.txt", ",1")?.display()));
        }
        command.args(match (self.peer, self.job) {
            (Peer::CXdp, _) => &["at_xdp=lan"][..],
            (_, Job::Nat) => &["egress=wan", "ingress=wan"],
            (_, Job::Balance) => &["egress=lan", "ingress=lan"],
            _ => &["ingress=lan"],
        });
        self.spawn(command, "attached")
    }

    fn suricata(&mut self) -> Result<(), Error> {
        self.prefixes("list.txt", ",1,127")?;
        self.file("categories.txt", "1,blocked,blocked\n")?;
        let rules = self.directory.join(format!("{}.rules", self.job.name()));
        if !rules.exists() {
            self.file(&format!("{}.rules", self.job.name()), "")?;
        }
        let mut command = self.beside("suricata")?;
        command.arg("-c").arg(self.directory.join("suricata.yaml"));
        let more = self.directory.join(format!("{}.yaml", self.job.name()));
        if more.exists() {
            command.arg("--include").arg(more);
        }
        command.arg("-S").arg(rules).arg("-l").arg(&self.directory).args([
            "-q",
            "0",
            "-q",
            "1",
            "--runmode",
            "workers",
            "-k",
            "none",
        ]);
        self.spawn(command, "Engine started")?;
        check(self.gateway.command("ip6tables-restore")?.arg(self.directory.join("suricata.ip6tables")))?;
        Ok(())
    }

    fn haproxy(&mut self) -> Result<(), Error> {
        self.gateway.ip("addr add 2001:db8:5::80/128 dev wan nodad\n")?;
        let mut command = self.beside("haproxy")?;
        command.args(["-V", "-db", "-f"]).arg(self.directory.join(format!("{}.cfg", self.job.name())));
        self.spawn(command, "")?;
        self.process.as_ref().map_or(Ok(()), |process| wait_listening(process, "tcp", 443))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_script_can_be_set() {
        let Part::Does(texts) = Peer::ScriptKernel.part(Job::Limit) else { unreachable!("it does it") };
        assert!(texts[0].1.contains(SCRIPTS_LIMIT), "{}", texts[0].1);
    }
}
