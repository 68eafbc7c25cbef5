//! A controller that was taken over, with its keys and all that was ever published: what it can say, it says, to agents that run,
//! to those that were restarted, and to those that are new.

use std::time::Duration;

use fleet::agent::{Action, Agent, Source};
use fleet::document::Serial;
use fleet::exchange::{Answer, Cursor};
use fleet::fleet::{Fleet, Notices, Old};
use fleet::news::{DocumentNews, Have, News};
use fleet::settings::Settings;
use fleet::site::Site;

use crate::scene::*;
use crate::world::controller;

const SECOND: Duration = Duration::from_secs(1);

/// Three documents: a hub and two spokes; a third spoke, which is the agent's; the first spoke is none any more. And all that
/// somebody who was there all the time can say of them.
fn all_that_was_ever_said() -> (Administrators, Vec<Fleet>, Vec<News>) {
    let mut administrators = Administrators::of(hub_and_spokes());
    administrators.contents.set_settings(Settings {
        policy: hub_and_spokes(),
        controllers: vec![controller("c1")],
        ..Settings::default()
    });
    administrators.contents.put(site("hub", "hub", 1));
    administrators.contents.put(site("s2", "spoke", 2));
    administrators.contents.put(site("s3", "spoke", 3));
    let mut fleet = administrators.published();
    let mut fleets = vec![fleet.clone()];
    administrators.contents.put(site("s4", "spoke", 4));
    take(&mut fleet, administrators.publish());
    let notice = contact_notice(&fleet, "hub", 5, contact(0x15));
    take(&mut fleet, notice);
    fleets.push(fleet.clone());
    let mut gone = member("s2", "spoke", 2);
    gone.revoked = Some(1_800_000_000);
    administrators.contents.put(Site::new(gone, contact(2)));
    take(&mut fleet, administrators.publish());
    let notice = contact_notice(&fleet, "hub", 6, contact(0x16));
    take(&mut fleet, notice);
    fleets.push(fleet);
    let mut said = Vec::new();
    for one in &fleets {
        let whole = Have { authority: 0, ..Have::default() };
        said.push(one.all_news(&whole, Notices::All));
        for who in ["hub", "s2", "s4", "nobody"] {
            said.push(told(one, who));
            for old in &fleets {
                let old = Old { document: old.document().unwrap(), different: None };
                let have = Have { serial: Some(old.document.head.serial), ..whole };
                said.push(one.news_for(&name(who), &have, Some(old), Notices::All));
            }
        }
    }
    // Signed by others, and heads of one document with what another contains.
    let mut others = administrators.clone();
    others.signers = vec!["mallory", "eve"];
    others.contents.put(site("mallory", "hub", 66));
    said.push(others.publish());
    let heads: Vec<_> = said.iter().filter_map(|news| Some(news.document.as_ref()?.head.clone())).collect();
    let changes: Vec<_> =
        said.iter().filter_map(|news| Some(news.document.as_ref()?.change.clone())).collect();
    for head in heads.iter().step_by(5) {
        for change in changes.iter().step_by(3) {
            let document = DocumentNews { head: head.clone(), change: change.clone() };
            said.push(News { document: Some(document), ..News::default() });
        }
    }
    (administrators, fleets, said)
}

/// Answers each of its questions to a controller with one of these; what its gateway is given meanwhile.
fn answer(agent: &mut Agent, said: &[News], random: &mut fastrand::Rng, times: usize) -> Vec<String> {
    let (mut applied, mut now) = (Vec::new(), Duration::ZERO);
    let mut answered = 0;
    while answered < times {
        agent.handle_timeout(now);
        let Some(action) = agent.next_action() else {
            now = agent.deadline().max(now);
            continue;
        };
        match action {
            Action::Ask { id, source: Source::Outside { .. }, .. } => {
                answered += 1;
                let since = Cursor { place: random.u64(..3), position: random.u64(..) };
                let news = said[random.usize(..said.len())].clone();
                agent.answered(id, Answer { news, since }, now + SECOND);
                now += 2 * SECOND;
            }
            Action::Ask { id, .. } => agent.failed(id, now),
            Action::Apply(text) => {
                applied.push(text);
                agent.gateway_answered(Ok(()), now);
            }
            Action::Gateway(outcome) => panic!("{outcome:?}"),
            Action::LookUp(_) | Action::Forget(_) | Action::Keep | Action::KeepTaken => {}
            Action::Leave(_) | Action::Warn(_) => {}
        }
    }
    applied
}

/// The agent of the third spoke, which was told all until now.
fn agent(administrators: &Administrators, fleet: &Fleet) -> Agent {
    let mut own = administrators.newcomer();
    take(&mut own, told(fleet, "s4"));
    Agent::new(name("s4"), signer("s4"), own, 7, Duration::ZERO)
}

#[test]
fn whatever_it_says_no_gateway_has_other_peers() {
    let (administrators, fleets, said) = all_that_was_ever_said();
    let mut agent = agent(&administrators, &fleets[2]);
    let have = agent.fleet().have();
    let applied = answer(&mut agent, &said, &mut fastrand::Rng::with_seed(1), 1000);
    assert_eq!(applied.len(), 1, "what it had from the beginning");
    assert!(applied[0].contains("2001:db8:16::/64") && !applied[0].contains("fd00:2::1"), "{}", applied[0]);
    assert_eq!(agent.fleet().have(), have);
}

#[test]
fn nor_after_a_restart() {
    let (administrators, fleets, said) = all_that_was_ever_said();
    let before = agent(&administrators, &fleets[2]);
    let (authorities, news) = before.fleet().memory();
    let news = serde_json::from_str(&serde_json::to_string(&news).unwrap()).unwrap();
    let fleet = Fleet::restore(before.fleet().network(), &authorities, news).unwrap();
    let mut agent = Agent::new(name("s4"), signer("s4"), fleet, 8, Duration::ZERO);
    let applied = answer(&mut agent, &said, &mut fastrand::Rng::with_seed(2), 1000);
    assert_eq!(applied.len(), 1);
    assert_eq!(agent.fleet().serial(), Some(Serial(3)));
}

/// Who is new may be told what is signed and in which he is, and nothing else: to keep the last document from him is what such
/// a controller can do, until one of his peers has it.
#[test]
fn who_is_new_goes_no_further_back_than_to_where_he_is_a_member() {
    let (administrators, fleets, said) = all_that_was_ever_said();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let mut own = administrators.newcomer();
        let mut serial = None;
        for _ in 0..10 {
            own.take(said[random.usize(..said.len())].clone());
            assert!(own.serial() >= serial, "{serial:?}, then {:?}", own.serial());
            serial = own.serial();
            assert!(own.site(&name("mallory")).is_none());
            assert_eq!(own.site(&name("s4")).is_some(), serial >= Some(Serial(2)));
        }
        // A peer has it.
        own.take(told(&fleets[2], "s4"));
        assert!(own.site(&name("s2")).unwrap().member.is_revoked());
    }
}

/// It says that an agent has heard more than was ever said: honest controllers in its place are not believed to have told it.
#[test]
fn what_it_says_of_how_far_was_heard_keeps_nothing_from_an_agent_later() {
    let (administrators, fleets, _) = all_that_was_ever_said();
    let mut agent = agent(&administrators, &fleets[2]);
    let mut desk = fleet::desk::Desk::new(fleets[2].clone(), 1);
    let lie = Cursor { place: 1, position: u64::MAX };
    let mut now = Duration::ZERO;
    let mut is_first = true;
    let heard = contact_notice(&fleets[2], "hub", 7, contact(0x17));
    for _ in 0..100 {
        agent.handle_timeout(now);
        let Some(action) = agent.next_action() else {
            now = agent.deadline().max(now);
            continue;
        };
        match action {
            Action::Ask { id, source: Source::Outside { .. }, .. } if is_first => {
                is_first = false;
                agent.answered(id, Answer { news: News::default(), since: lie }, now);
                assert!(desk.take(heard.clone()).is_new);
            }
            Action::Ask { id, source: Source::Outside { .. }, question, .. } => {
                let answer = desk.answer(&name("s4"), &question, true).unwrap();
                agent.answered(id, answer, now);
                now += SECOND;
            }
            Action::Ask { id, .. } => agent.failed(id, now),
            Action::Apply(text) if text.contains("2001:db8:17::/64") => return,
            Action::Apply(_) => agent.gateway_answered(Ok(()), now),
            _ => {}
        }
    }
    panic!("it has never heard of it");
}
