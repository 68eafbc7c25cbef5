//! Over TLS: what agents, people and strangers are answered.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use controller::{Client, ClientError, Controller, Identity, OPENAPI, Role, Server, access};
use fleet::enrolment::{self, State, Status};
use fleet::exchange::{Asking, Challenge, FromController, Question, ToController};
use fleet::key::Digest;
use fleet::news::News;
use fleet::signed::Signed;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use store::Memory;
use tempfile::TempDir;

use crate::scene::*;

/// A controller that is served, at a port of this machine.
struct Served {
    at: String,
    certificate: Digest,
    store: Memory,
    controller: Controller<Memory>,
    _folder: TempDir,
}

impl Served {
    async fn new() -> Self {
        let store = Memory::new();
        let controller = network(&store).await;
        publish(&controller, |contents| contents.put(site("kiel", 2))).await.unwrap();
        Self::of(store, controller)
    }

    fn of(store: Memory, controller: Controller<Memory>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::of_folder(folder.path(), &["localhost".to_owned()]).unwrap();
        let certificate = identity.digest();
        assert_eq!(Identity::of_folder(folder.path(), &[]).unwrap().digest(), certificate);
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let server = Server::new(controller.clone(), listener, identity, 100).unwrap();
        tokio::spawn(server.serve());
        Served { at, certificate, store, controller, _folder: folder }
    }

    fn client(&self, token: Option<&str>) -> Client {
        let token = token.map(|token| zeroize::Zeroizing::new(token.to_owned()));
        Client::new(&self.at, self.certificate, token).unwrap()
    }

    async fn person(&self, who: &str, role: Role) -> Client {
        let token = access::grant(&self.store, "root", name(who), role, None).await.unwrap();
        self.client(Some(&token))
    }

    fn asking(&self, who: &str, challenge: &str, question: Question) -> ToController {
        let asking = Asking {
            network: self.controller.fleet().network(),
            site: name(who),
            certificate: self.certificate,
            challenge: challenge.to_owned(),
            question,
        };
        ToController { asking: Signed::new(&asking, [&signer(who)]), news: News::default() }
    }

    async fn ask(&self, path: &str, request: &ToController) -> (StatusCode, Bytes) {
        let body = serde_json::to_vec(request).unwrap();
        self.client(None).ask(Method::POST, path, body.into()).await.unwrap()
    }

    async fn challenge(&self) -> String {
        let (status, text) = self.ask("/v1/sync", &self.asking("kiel", "", Question::default())).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        serde_json::from_slice::<Challenge>(&text).unwrap().challenge
    }
}

fn error(text: &Bytes) -> String {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    value["error"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_agent_is_challenged_once_and_waits_for_news() {
    let served = Served::new().await;
    let challenge = served.challenge().await;
    let (status, text) =
        served.ask("/v1/sync", &served.asking("kiel", &challenge, Question::default())).await;
    assert_eq!(status, StatusCode::OK, "{text:?}");
    let told: FromController = serde_json::from_slice(&text).unwrap();
    assert!(told.answer.news.document.is_some());
    // With the challenge of that answer it waits, and says that it was renumbered.
    let question = Question { have: served.controller.fleet().have(), since: Some(told.answer.since) };
    let waits = served.asking("kiel", &told.challenge, question);
    let mut speaks = served.asking("hub", &challenge, Question::default());
    speaks.news = notice(&served.controller.fleet(), "hub", 5, contact(9));
    let (waited, spoke) = tokio::join!(served.ask("/v1/sync?wait=60", &waits), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        served.ask("/v1/sync", &speaks).await
    });
    assert_eq!(spoke.0, StatusCode::OK, "{spoke:?}");
    let heard: FromController = serde_json::from_slice(&waited.1).unwrap();
    assert_eq!(heard.answer.news.contacts.len(), 1);
}

/// As after its start, and every hour: what it tells is known there, or is new.
#[tokio::test]
async fn while_the_store_is_away_an_agent_is_answered_and_tells_its_notices_again() {
    let served = Served::new().await;
    let challenge = served.challenge().await;
    let said = |number, at| {
        let mut speaks = served.asking("hub", &challenge, Question::default());
        speaks.news = notice(&served.controller.fleet(), "hub", number, contact(at));
        speaks
    };
    let (known, new) = (said(5, 9), said(6, 8));
    assert_eq!(served.ask("/v1/sync", &known).await.0, StatusCode::OK);
    served.store.reachable(false);
    for speaks in [&known, &new] {
        let (status, text) = served.ask("/v1/sync", speaks).await;
        assert_eq!(status.as_u16(), fleet::exchange::NOT_KEPT, "{text:?}");
        let told: FromController = serde_json::from_slice(&text).unwrap();
        assert!(told.answer.news.document.is_some());
    }
    served.store.reachable(true);
    for speaks in [&known, &new] {
        assert_eq!(served.ask("/v1/sync", speaks).await.0, StatusCode::OK);
    }
    assert_eq!(served.controller.fleet().numbers()[&name("hub")].0, 6);
}

#[tokio::test]
async fn a_question_of_anybody_else_is_refused() {
    let served = Served::new().await;
    let challenge = served.challenge().await;
    let refused = async |request: &ToController| {
        let (status, text) = served.ask("/v1/sync", request).await;
        assert!(!status.is_success());
        (status, error(&text))
    };
    // Signed by another, of no site, for another controller, with a challenge of another.
    let mut forged = served.asking("kiel", &challenge, Question::default());
    forged.asking = Signed::new(&forged.asking.read().unwrap(), [&signer("mallory")]);
    assert_eq!(refused(&forged).await.0, StatusCode::FORBIDDEN);
    let stranger = served.asking("mallory", &challenge, Question::default());
    assert_eq!(refused(&stranger).await.0, StatusCode::FORBIDDEN);
    let mut relayed = served.asking("kiel", &challenge, Question::default());
    let mut asking = relayed.asking.read().unwrap();
    asking.certificate = Digest::of(b"another");
    relayed.asking = Signed::new(&asking, [&signer("kiel")]);
    assert!(refused(&relayed).await.1.contains("for another controller"));
    let other = Served::of(served.store.clone(), served.controller.clone());
    let foreign = served.asking("kiel", &other.challenge().await, Question::default());
    assert_eq!(refused(&foreign).await.0, StatusCode::UNAUTHORIZED);
    // A site that is revoked is told so, and not how anybody is met.
    publish(&served.controller, |contents| {
        let mut revoked = member("kiel", 2);
        revoked.revoked = Some(1);
        contents.put(fleet::site::Site::new(revoked, contact(2)));
    })
    .await
    .unwrap();
    let (status, text) =
        served.ask("/v1/sync", &served.asking("kiel", &challenge, Question::default())).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!String::from_utf8_lossy(&text).contains("2001:db8:"));
    // It says nothing of itself any more.
    let mut speaks = served.asking("kiel", &challenge, Question::default());
    speaks.news = notice(&served.controller.fleet(), "kiel", 9, contact(9));
    assert_eq!(served.ask("/v1/sync", &speaks).await.0, StatusCode::OK);
    assert!(served.controller.fleet().numbers().is_empty());
}

#[tokio::test]
async fn a_site_enrols() {
    let served = Served::new().await;
    let invitation = invite(&served.controller, "bonn", "token").await;
    let signed = application(&invitation, "bonn", 3);
    let client = served.client(None);
    let status: Status = client.post(enrolment::APPLY, &signed).await.unwrap();
    assert_eq!(status.state, State::Waiting);
    publish(&served.controller, |contents| contents.put(site("bonn", 3))).await.unwrap();
    let status: Status = client.get(&enrolment::status_path(&status.id)).await.unwrap();
    assert_eq!(status.state, State::Member);
    let again =
        client.post::<Status>(enrolment::APPLY, &application(&invitation, "bonn", 4)).await.unwrap_err();
    assert!(again.to_string().contains("was used"), "{again}");
}

#[tokio::test]
async fn people_do_what_their_role_may() {
    let served = Served::new().await;
    let viewer = served.person("vera", Role::Viewer).await;
    let inviter = served.person("ivo", Role::Inviter).await;
    let publisher = served.person("paul", Role::Publisher).await;
    let invitation = json!({"key": signer("t").public(), "terms": terms("bonn"), "expires": soon()});
    let refused = |result: Result<Value, ClientError>| match result {
        Err(ClientError::Refused { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(viewer.post("/v1/invitations", &invitation).await), StatusCode::FORBIDDEN);
    inviter.post::<Value>("/v1/invitations", &invitation).await.unwrap();
    let news = next(&served.controller.fleet(), &["ada"], |contents| contents.put(site("jena", 5)));
    assert_eq!(refused(inviter.post("/v1/publish", &news).await), StatusCode::FORBIDDEN);
    let shown: Value = viewer.post("/v1/preview", &news).await.unwrap();
    assert_eq!(shown["added"], json!(["jena"]));
    assert_eq!(shown["gateways"]["hub"]["peers_added"], json!(["jena"]));
    publisher.post::<()>("/v1/publish", &news).await.unwrap();
    let forged = next(&served.controller.fleet(), &["mallory"], |contents| contents.put(site("eve", 6)));
    assert_eq!(refused(publisher.post("/v1/publish", &forged).await), StatusCode::UNPROCESSABLE_ENTITY);
    let behind = next(&served.controller.fleet(), &["ada"], |_| {});
    publisher
        .post::<()>(
            "/v1/publish",
            &next(&served.controller.fleet(), &["ada"], |contents| contents.put(site("ulm", 7))),
        )
        .await
        .unwrap();
    assert_eq!(refused(publisher.post("/v1/publish", &behind).await), StatusCode::CONFLICT);
    let past: Value = viewer.get("/v1/documents/3").await.unwrap();
    assert_eq!(past["difference"]["added"], json!(["jena"]));
    assert_eq!(refused(viewer.get("/v1/documents/99").await), StatusCode::NOT_FOUND);
    let fleet: Value = viewer.get("/v1/fleet").await.unwrap();
    assert_eq!((&fleet["serial"], &fleet["sites"]), (&json!(4), &json!(4)));
    // Whoever is let in no more is nobody.
    access::withdraw(&served.store, "root", &name("vera")).await.unwrap();
    assert_eq!(refused(viewer.get("/v1/me").await), StatusCode::UNAUTHORIZED);
}

/// As after a fleet's controllers were away: each asks once without a challenge.
#[tokio::test]
async fn many_agents_of_one_network_that_come_back_are_not_strangers() {
    let served = Served::new().await;
    for _ in 0..100 {
        served.challenge().await;
    }
    let challenge = served.challenge().await;
    let good = served.asking("kiel", &challenge, Question::default());
    assert_eq!(served.ask("/v1/sync", &good).await.0, StatusCode::OK);
    // Who signs what is none of his is one after as many as anybody.
    let mut forged = served.asking("kiel", &challenge, Question::default());
    forged.asking = Signed::new(&forged.asking.read().unwrap(), [&signer("mallory")]);
    for _ in 0..60 {
        assert_eq!(served.ask("/v1/sync", &forged).await.0, StatusCode::FORBIDDEN);
    }
    assert_eq!(served.ask("/v1/sync", &forged).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(served.ask("/v1/sync", &good).await.0, StatusCode::TOO_MANY_REQUESTS);
    let unbound = served.asking("kiel", "", Question::default());
    assert_eq!(served.ask("/v1/sync", &unbound).await.0, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn strangers_are_bounded() {
    let served = Served::new().await;
    let client = served.client(None);
    let large = Bytes::from(vec![b' '; 100 * 1024]);
    let (status, _) = client.ask(Method::POST, "/v1/enrol", large).await.unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    for (method, path, body) in [
        (Method::POST, "/v1/sync", "{}"),
        (Method::POST, "/v1/enrol", "nonsense"),
        (Method::GET, "/v1/enrol/..%2ftoken", ""),
        (Method::GET, "/v1/fleet", ""),
        (Method::DELETE, "/v1/sync", ""),
        (Method::GET, "/", ""),
        (Method::POST, "/v1/sync?wait=-1", "{}"),
    ] {
        let (status, text) = client.ask(method, path, body.into()).await.unwrap();
        assert!(status.is_client_error() && !error(&text).is_empty(), "{path}: {status} {text:?}");
    }
    let guessing = served.client(Some("sidestep-access1-guess"));
    let mut last = StatusCode::OK;
    for _ in 0..100 {
        last = guessing.ask(Method::GET, "/v1/me", Bytes::new()).await.unwrap().0;
        if last == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_controller_is_known_by_its_certificate() {
    let served = Served::new().await;
    let other = Client::new(&served.at, Digest::of(b"another"), None).unwrap();
    let why = other.get::<Value>("/v1/openapi.json").await.unwrap_err().to_string();
    assert!(why.contains("another certificate"), "{why}");
    let nobody = Client::new("[::1]:1", served.certificate, None).unwrap();
    assert!(matches!(nobody.get::<Value>("/v1/me").await, Err(ClientError::Unreachable { .. })));
}

#[tokio::test]
async fn the_description_has_all_routes() {
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = described["paths"].as_object().unwrap();
    let source = include_str!("../../src/http/mod.rs");
    let routes = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let routes: BTreeSet<&str> = routes.collect();
    assert_eq!(routes, paths.keys().map(String::as_str).collect());
    let served = Served::new().await;
    let publisher = served.person("paul", Role::Publisher).await;
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{id}", &"a".repeat(64)).replace("{serial}", "1");
            let (_, text) = publisher.ask(method.clone(), &path, Bytes::new()).await.unwrap();
            assert!(!error(&text).contains("no such path"), "{method} {path}");
            // What takes a token is refused without one.
            if operation["x-role"].is_string() {
                let (status, _) = served.client(None).ask(method, &path, Bytes::new()).await.unwrap();
                assert!(
                    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS),
                    "{path}: {status}"
                );
            }
        }
    }
}

#[tokio::test]
async fn each_route_takes_the_role_that_the_description_names() {
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let served = Served::new().await;
    let roles = [Role::Viewer, Role::Inviter, Role::Publisher];
    let mut people = 0;
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let Some(needed) = operation["x-role"].as_str() else { continue };
            let needed = roles.into_iter().find(|role| role.to_string() == needed).expect("a role");
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{id}", &"a".repeat(64)).replace("{serial}", "1");
            for role in roles {
                // Anew each time: one of the routes is for who logs out.
                people += 1;
                let one = served.person(&format!("p{people}"), role).await;
                let (status, _) = one.ask(method.clone(), &path, Bytes::new()).await.unwrap();
                assert_ne!(status, StatusCode::UNAUTHORIZED, "{role}: {method} {path}");
                assert_eq!(
                    status == StatusCode::FORBIDDEN,
                    role < needed,
                    "{role}: {method} {path}: {status}"
                );
            }
        }
    }
}
