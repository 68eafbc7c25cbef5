//! What the page is told: of a fleet as a whole, of a site, of what a change would do. Where sites hop is told of one site at a
//! time, and no key is.

use controller::{Gateway, Lines, Preview};
use fleet::enrolment::State;
use fleet::fleet::{Current, Fleet};
use fleet::name::Name;
use fleet::plan::Plan;
use serde::Serialize;
use serde_json::{Value, json};

use super::groups::groups;
use super::hearing::{Asked, Ears};
use super::known::Known;

/// Names or networks of a list that are told: of more, how many.
const FEW: usize = 12;
/// Sites or gateways that a difference tells of.
const MANY: usize = 500;

/// All of it.
pub(super) fn overview(known: &Known, is_own: bool) -> Value {
    let mut shown = json!({
        "fault": known.fault,
        "you": known.you(),
        "is_own": is_own,
        "controllers": known.controllers.iter().map(controller).collect::<Vec<_>>(),
    });
    let waiting = known.applications.iter().filter(|one| one.state == State::Waiting);
    shown["waiting"] = waiting.count().into();
    let Some(fleet) = &known.fleet else { return shown };
    let (groups, group_of) = groups(fleet);
    let ears = Ears::of(&known.controllers, fleet.serial());
    let site = |(name, site): (&Name, Current<'_>)| {
        let member = &site.member;
        let mut shown = json!({
            "name": name, "role": member.role, "region": member.region, "zone": member.zone,
            "networks": member.networks.len(), "group": group_of.get(name),
        });
        match member.revoked {
            Some(since) => shown["revoked_s"] = since.into(),
            None => shown["heard"] = json!(ears.standing(name)),
        }
        shown
    };
    let authority = fleet.chain().current();
    shown["network"] = json!(fleet.network());
    shown["document"] = json!(fleet.document().map(|document| json!({
        "serial": document.head.serial, "made_s": document.head.made,
    })));
    shown["authority"] = json!({
        "version": authority.version,
        "threshold": authority.threshold,
        "administrators": authority.administrators.iter().map(|one| &one.name).collect::<Vec<_>>(),
        "delegates": authority.delegates.iter().map(|one| &one.name).collect::<Vec<_>>(),
    });
    shown["has_reach"] = fleet.settings().is_some_and(|settings| !settings.policy.reach.is_empty()).into();
    shown["groups"] = json!(groups);
    shown["sites"] = fleet.sites().into_iter().map(site).collect();
    shown
}

fn controller(asked: &Asked) -> Value {
    match &asked.answer {
        Ok(told) => {
            let (for_s, heard) = told.heard();
            json!({ "name": asked.name, "places": asked.places, "for_s": for_s, "heard": heard, "serial": told.short.serial })
        }
        Err(why) => json!({ "name": asked.name, "places": asked.places, "fault": why }),
    }
}

/// A site.
pub(super) fn site(known: &Known, fleet: &Fleet, name: &Name) -> Option<Value> {
    let site = fleet.site(name)?;
    let plan = Plan::of(fleet, name);
    let member = &site.member;
    let peer = |peer: &fleet::plan::PlannedPeer| {
        let networks: Vec<_> = peer.networks().collect();
        json!({ "name": peer.name, "keepalive_s": peer.keepalive, "networks": cut(&networks) })
    };
    Some(json!({
        "name": name, "role": member.role, "region": member.region, "zone": member.zone, "standby": member.standby,
        "networks": member.networks, "may_take": member.may_take, "address": member.address,
        "revoked_s": member.revoked,
        "hops_in": site.contact.map(|contact| contact.hop_prefix),
        "peers": plan.peers.iter().map(peer).collect::<Vec<_>>(),
        "unmet": plan.unmet,
        "unreachable": cut(&plan.unreachable),
        "heard": Ears::of(&known.controllers, fleet.serial()).standing(name),
        "serial": fleet.serial(),
    }))
}

/// What a change would do.
pub(super) fn difference(preview: &Preview) -> Value {
    let gateway = |(name, is): (&Name, &Gateway)| {
        json!({
            "name": name,
            "peers": { "added": cut(&is.peers_added), "removed": cut(&is.peers_removed), "changed": cut(&is.peers_changed) },
            "networks": { "added": cut(&is.networks_added), "removed": cut(&is.networks_removed) },
        })
    };
    let lines =
        |lines: &Lines| json!({ "added": some(&lines.added, MANY), "removed": some(&lines.removed, MANY) });
    json!({
        "is_empty": preview.is_empty(),
        "sites": {
            "added": some(&preview.added, MANY), "returned": some(&preview.returned, MANY),
            "revoked": some(&preview.revoked, MANY), "removed": some(&preview.removed, MANY),
            "changed": some(&preview.changed, MANY),
        },
        "settings": preview.settings,
        "settings_lines": lines(&preview.settings_lines),
        "authority": preview.authority,
        "authority_lines": lines(&preview.authority_lines),
        "gateways": preview.gateways.iter().take(MANY).map(gateway).collect::<Vec<_>>(),
        "more_gateways": preview.gateways.len().saturating_sub(MANY),
    })
}

fn cut<T: Serialize>(list: &[T]) -> Value {
    some(list, FEW)
}

/// The first of a list, and how many there are.
fn some<T: Serialize>(list: &[T], most: usize) -> Value {
    json!({ "count": list.len(), "some": &list[..list.len().min(most)] })
}
