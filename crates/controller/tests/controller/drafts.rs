//! Drafts: what is shown is what is signed.

use controller::{Draft, Error, verified};
use fleet::authority::{Administrator, Authority};
use fleet::document::Contents;
use fleet::fleet::{Fleet, Notices};
use fleet::news::{Have, News};
use fleet::signed::Signed;
use serde_json::json;

use crate::scene::*;

/// All that is signed of a fleet.
fn in_force(fleet: &Fleet) -> News {
    fleet.all_news(&Have::default(), Notices::All)
}

/// A fleet with one more document.
fn then(fleet: &Fleet, change: impl FnOnce(&mut Contents)) -> Fleet {
    let mut after = fleet.clone();
    assert!(after.take(next(fleet, &["ada"], change)).refused.is_empty());
    after
}

/// A draft as whoever likes can write one.
fn written(before: &Fleet, change: &News) -> String {
    json!({ "network": before.network(), "before": in_force(before), "change": change }).to_string()
}

/// The first authority with Ben, who has to sign, too.
fn with_ben(fleet: &Fleet, version: u64) -> Authority {
    let mut next = fleet.chain().current().clone();
    next.administrators.push(Administrator { name: name("ben"), key: signer("ben").public() });
    next.delegates.clear();
    Authority { version, network: Some(fleet.network()), threshold: 2, ..next }
}

fn refused(draft: &str) -> String {
    match Draft::parse(draft).map(drop) {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_draft_is_a_change_of_what_it_says_is_in_force() {
    let one = verified(first().document.unwrap().head.read().unwrap().network, first()).unwrap();
    let old = then(&one, |contents| contents.put(site("kiel", 2)));
    let now = then(&old, |contents| contents.put(revoked("kiel", 2)));
    // It brings back a site that was revoked, and says that it never was. Whoever signs it would see nothing of that site.
    let mut change = next(&now, &["ada"], |contents| contents.put(site("kiel", 2)));
    let mut after = now.clone();
    assert!(after.take(change.clone()).refused.is_empty());
    change.document.as_mut().unwrap().change = after.document().unwrap().contents.complete();
    let why = refused(&written(&old, &change));
    assert!(
        why.contains("document 4 in this draft is no change of document 2") && why.contains("anew"),
        "{why}"
    );
    // With what is in force it is shown.
    let (draft, fleet) = Draft::parse(&written(&now, &change)).unwrap();
    let shown = draft.preview(&fleet).unwrap();
    assert_eq!(shown.returned, [name("kiel")]);
    assert!(shown.to_string().starts_with("+ site kiel (it was revoked, and comes back)\n"), "{shown}");
    // The serial is the next one, whatever document it is a change of.
    let mut head = change.document.as_ref().unwrap().head.read().unwrap();
    head.serial.0 = 9;
    change.document.as_mut().unwrap().head = Signed::new(&head, [&signer("ada")]);
    assert!(refused(&written(&now, &change)).contains("document 9"));
}

#[test]
fn a_draft_has_nothing_in_it_that_is_not_shown() {
    let fleet = then(
        &verified(first().document.unwrap().head.read().unwrap().network, first()).unwrap(),
        |contents| {
            contents.put(revoked("kiel", 2));
        },
    );
    let change = next(&fleet, &[], |contents| contents.put(site("kiel", 2)));
    assert!(Draft::parse(&written(&fleet, &change)).is_ok());
    // A delegate takes it out at once: then there is nothing to see of it.
    let mut after = fleet.clone();
    assert!(after.take(next(&fleet, &["ada"], |contents| contents.put(site("kiel", 2)))).refused.is_empty());
    let mut hidden = change.clone();
    hidden.delegated = revoked_by("robot", &after, "kiel").delegated;
    assert!(refused(&written(&fleet, &hidden)).contains("more in it"));
    // The second authority is shown alone, and each of them would be signed.
    let alone = Authority { version: 2, threshold: 1, ..with_ben(&fleet, 2) };
    let mut hidden = change.clone();
    hidden.authorities = vec![Signed::new(&alone, []), Signed::new(&with_ben(&fleet, 3), [])];
    assert!(refused(&written(&fleet, &hidden)).contains("more in it"));
    let no_document = News { document: None, ..change };
    assert!(refused(&written(&fleet, &no_document)).contains("no document"));
}

#[test]
fn who_may_sign_is_shown_by_name_and_rules_line_by_line() {
    let fleet = verified(first().document.unwrap().head.read().unwrap().network, first()).unwrap();
    let draft = Draft::new(&fleet, in_force(&fleet), Some(with_ben(&fleet, 2)), |_| Ok(())).unwrap();
    let shown = draft.preview(&fleet).unwrap().to_string();
    let ben = format!("  + administrator ben: {}\n", signer("ben").public());
    for line in [
        "~ who may sign\n",
        "  - 1 of 1 administrators have to sign\n",
        "  + 2 of 2 administrators have to sign\n",
        "  - delegate = { name = \"robot\",",
        &ben,
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    assert!(!shown.contains("administrator ada"), "she stays: {shown}");

    let rules = controller::rules::read(
        "signposts = \"where.example\u{202e}\"\n\
         link = [{ between = { roles = [\"hub\"] }, and = { roles = [\"spoke\"] } }]\n\
         reach = [{ from = { zones = [\"office\"] }, to = {} }]\n\
         controller = [{ name = \"c1\", outside = \"c1.example:4160\", certificate = \"CERTIFICATE\" }]"
            .replace("CERTIFICATE", &fleet::key::Digest::of(b"c1").to_string())
            .as_str(),
    )
    .unwrap();
    let draft = Draft::settings(&fleet, in_force(&fleet), rules).unwrap();
    let shown = draft.preview(&fleet).unwrap().to_string();
    for line in [
        "~ rules, or where controllers are\n",
        "  - relay = { roles = [\"hub\"] }\n",
        "  - no reach: everybody may reach everybody\n",
        "  + reach = { from = { zones = [\"office\"] }, to = {} }\n",
        "  + controller = { name = \"c1\", outside = \"c1.example:4160\", ",
        "  + signposts = \"where.example\\u{202e}\"\n",
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    assert!(!shown.contains("link ="), "it stays: {shown}");
}
