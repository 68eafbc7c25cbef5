//! Expressions of Lua, one after the other, with a script that is loaded and the packets of a capture.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Files, TestHost, World};
use crate::pcap::Captured;
use crate::vm::{Interactive, Limits, Machine, ScriptError};

/// Instructions for one text: it may go through a capture.
const INSTRUCTIONS: u64 = 100_000_000;

/// A state that is asked.
pub struct Session {
    state: Interactive,
    world: Rc<RefCell<World>>,
}

/// What has come of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Values, as text; and what was logged and sent meanwhile.
    Values {
        /// Empty if there is none.
        text: String,
        /// Lines.
        log: Vec<String>,
        /// Packets, from their IP header on.
        sent: Vec<Vec<u8>>,
    },
    /// The text is no whole expression or statement yet.
    Incomplete,
}

impl Session {
    /// Loads a script. The first packet is `p`.
    ///
    /// # Errors
    /// The script's.
    pub fn new(
        path: &str,
        source: &str,
        packets: &[Captured],
        files: &Rc<dyn Files>,
    ) -> Result<Self, ScriptError> {
        let world = Rc::new(RefCell::new(World::default()));
        let host = TestHost { world: Rc::clone(&world), files: Rc::clone(files) };
        let limits = Limits { instructions: INSTRUCTIONS, memory: 256 << 20 };
        let state = Machine::new(host, limits).interactive(path, source, packets, &world, files)?;
        Ok(Self { state, world })
    }

    /// What an expression has for a value, or a statement does.
    ///
    /// # Errors
    /// Lua's.
    pub fn ask(&mut self, text: &str) -> Result<Answer, ScriptError> {
        let shown = self.state.evaluate(text)?;
        let mut world = self.world.borrow_mut();
        let (log, sent) = (std::mem::take(&mut world.log), std::mem::take(&mut world.sent));
        Ok(shown.map_or(Answer::Incomplete, |text| Answer::Values { text, log, sent }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::{FileError, Module};
    use crate::pcap::Link;

    struct Nothing;

    impl Files for Nothing {
        fn module(&self, _: &str) -> Result<Option<Module>, FileError> {
            Ok(None)
        }

        fn capture(&self, _: &str) -> Result<Vec<u8>, FileError> {
            Err(FileError::Outside)
        }
    }

    fn session(packets: usize) -> Session {
        let source = "function process_packet(p) nf.log('seen', #p) p:get()[20] = 9 return NF_DROP end";
        let mut octets = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 0, 0, 0];
        octets.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        let packet = |at: usize| {
            let mut octets = octets.clone();
            octets[19] = at as u8;
            Captured { link: Link::Ip, time: Duration::ZERO, octets }
        };
        let packets: Vec<_> = (1..=packets).map(packet).collect();
        Session::new("a.lua", source, &packets, &(Rc::new(Nothing) as Rc<dyn Files>)).expect("a session")
    }

    fn said(session: &mut Session, text: &str) -> String {
        match session.ask(text) {
            Ok(Answer::Values { text, log, sent }) => format!("{text}{}{}", log.concat(), sent.len()),
            Ok(Answer::Incomplete) => "…".to_owned(),
            Err(error) => error.message,
        }
    }

    #[test]
    fn expressions_are_shown_and_statements_done() {
        let mut session = session(2);
        for (text, wanted) in [
            ("1 + 1", "20"),
            ("ip = p:data(packet_eth):data(packet_ip)", "0"),
            ("ip:daddr():get(), #p", "\"192.0.2.1\"  340"),
            ("ip:saddr()", "field packet_ip:saddr: c00002010"),
            ("p:data(packet_eth):data():get()", "450000140000000040000000c0000201c00002010"),
            ("{ b = 2, 'x' }", "{ [\"b\"] = 2, [1] = \"x\" }0"),
            ("'a\\27\\\\'", "\"a\\x1b\\x5c\"0"),
            ("nil, true", "nil  true0"),
            ("run()", "\"NF_DROP\"seen 340"),
            ("p:get()[20]", "90"),
            ("next_packet():data(packet_eth):data(packet_ip):daddr():get()", "\"192.0.2.2\"0"),
            ("p:get()[20]", "00"),
            ("next_packet()", "there is no packet 3: there are 2"),
            ("packet(1) and #p", "340"),
            ("for i = 1, 2 do", "…"),
            ("for i = 1, 2 do nf.log(i) end", "120"),
            ("nothing.at_all", "repl:1: attempt to index a nil value"),
            ("1 +* 2", "repl:1: unexpected symbol near"),
        ] {
            let said = said(&mut session, text);
            assert!(said.contains(wanted), "{text}: {said}");
        }
    }

    #[test]
    fn without_packets_there_is_no_p() {
        let mut session = session(0);
        assert_eq!(said(&mut session, "p"), "nil0");
        assert!(said(&mut session, "run()").contains("there is no packet: name a capture with --pcap"));
    }

    #[test]
    fn a_loop_without_an_end_ends() {
        let mut session = session(1);
        assert!(said(&mut session, "while true do end").contains("used up its"));
        assert_eq!(said(&mut session, "2"), "20");
    }
}
