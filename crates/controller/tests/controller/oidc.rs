//! People who log in at an identity provider.

use std::net::TcpListener;

use controller::oidc::{Login, Provider, Returned, challenge, draw};
use controller::{Client, Identity, Role, Server, Session, access};
use fleet::key::Digest;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use store::Memory;
use tempfile::TempDir;

use crate::provider::{Known, Shared, Signs, now, pair, provide};
use crate::scene::*;

/// A controller with a provider.
struct Scene {
    provider: Shared,
    store: Memory,
    at: String,
    certificate: Digest,
    _folder: TempDir,
}

impl Scene {
    async fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let provider = provide(folder.path(), &[]);
        let secret = folder.path().join("secret");
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&secret, mode(0o640)).unwrap();
        let open = Provider::of_folder(folder.path()).err().unwrap().to_string();
        assert!(open.contains("chmod 600"), "{open}");
        std::fs::set_permissions(&secret, mode(0o600)).unwrap();
        let of_folder = Provider::of_folder(folder.path()).unwrap();
        let store = Memory::new();
        let controller = network(&store).await;
        let identity = Identity::of_folder(folder.path(), &["localhost".to_owned()]).unwrap();
        let certificate = identity.digest();
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let server = Server::new(controller, listener, identity, 100).unwrap().with_provider(of_folder);
        tokio::spawn(server.serve());
        Scene { provider, store, at, certificate, _folder: folder }
    }

    fn client(&self, token: Option<&str>) -> Client {
        let token = token.map(|token| zeroize::Zeroizing::new(token.to_owned()));
        Client::new(&self.at, self.certificate, token).unwrap()
    }

    /// Somebody has logged in at the provider, and comes back.
    fn returned(&self) -> Returned {
        let (code, nonce, verifier) = (draw().unwrap(), draw().unwrap(), draw().unwrap());
        let given = (nonce.clone(), challenge(&verifier));
        self.provider.lock().unwrap().codes.insert(code.clone(), given);
        Returned { code, verifier, nonce, redirect_uri: "http://127.0.0.1:4711/login".to_owned() }
    }

    async fn log_in(&self, returned: &Returned) -> Result<Session, String> {
        let session = self.client(None).post("/v1/session", returned).await;
        session.map_err(|error| error.to_string())
    }

    /// What is said to who comes back with a code that is good, where the provider does something else than it should.
    async fn refused(&self, change: impl FnOnce(&mut Known)) -> String {
        change(&mut self.provider.lock().unwrap());
        let told = self.log_in(&self.returned()).await.err().unwrap();
        let mut known = self.provider.lock().unwrap();
        (known.claims, known.signs) = (json!({}), Signs::AsItShould);
        told
    }
}

#[tokio::test]
async fn who_has_logged_in_may_for_a_while_what_his_groups_may() {
    let scene = Scene::new().await;
    let login: Login = scene.client(None).get("/v1/login").await.unwrap();
    assert!(login.authorization_endpoint.ends_with("/authorize"));
    let session = scene.log_in(&scene.returned()).await.unwrap();
    assert_eq!(session.role, Role::Viewer);
    assert!(session.name.as_str().starts_with("ada_example.net-"), "{}", session.name);
    assert!(session.expires > now() && session.expires <= now() + 3600 + 5);
    let ada = scene.client(Some(&session.token));
    assert_eq!(ada.get::<Value>("/v1/me").await.unwrap()["expires"], session.expires);
    ada.get::<Value>("/v1/news").await.unwrap();
    let no = ada.post::<()>("/v1/publish", &json!({})).await.unwrap_err().to_string();
    assert!(no.contains("only a viewer"), "{no}");
    scene.provider.lock().unwrap().claims = json!({ "groups": ["admins"] });
    let more = scene.log_in(&scene.returned()).await.unwrap();
    assert_eq!((more.role, &more.name), (Role::Publisher, &session.name));
    // Also who may hand in puts nothing in force that is not signed.
    let paul = scene.client(Some(&more.token));
    let no = paul.post::<()>("/v1/publish", &json!({})).await.unwrap_err().to_string();
    assert!(!no.contains("only a"), "{no}");
    ada.delete("/v1/session").await.unwrap();
    assert!(ada.get::<Value>("/v1/me").await.is_err(), "logged out");
    paul.get::<Value>("/v1/me").await.unwrap();
    let log: Value = paul.get("/v1/log").await.unwrap();
    assert!(log.to_string().contains("logged_in") && !log.to_string().contains(&more.token));
    // All of somebody's tokens are taken at once.
    access::withdraw(&scene.store, "root", &more.name).await.unwrap();
    assert!(paul.get::<Value>("/v1/me").await.is_err());
}

#[tokio::test]
async fn what_is_not_the_answer_to_this_login_is_refused() {
    let scene = Scene::new().await;
    let good = scene.returned();
    scene.log_in(&good).await.unwrap();
    let again = scene.log_in(&good).await.err().unwrap();
    assert!(again.contains("invalid_grant"), "a code is good once: {again}");
    let stolen = Returned { verifier: draw().unwrap(), ..scene.returned() };
    let told = scene.log_in(&stolen).await.err().unwrap();
    assert!(told.contains("invalid_grant"), "who has no verifier has nothing of a code: {told}");
    let other = Returned { nonce: draw().unwrap(), ..scene.returned() };
    let told = scene.log_in(&other).await.err().unwrap();
    assert!(told.contains("another login"), "{told}");
    let away = Returned { redirect_uri: "https://evil.example/".to_owned(), ..scene.returned() };
    let told = scene.log_in(&away).await.err().unwrap();
    assert!(told.contains("none of the redirects"), "{told}");
    let (status, _) = scene.client(None).ask(Method::POST, "/v1/session", Bytes::from("{}")).await.unwrap();
    assert!(status.is_client_error());
    assert_eq!(access::list(&scene.store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_that_is_wrong_in_any_way_lets_nobody_in() {
    let scene = Scene::new().await;
    for (claims, why) in [
        (json!({ "iss": "https://evil.example" }), "another identity provider"),
        (json!({ "aud": "another" }), "another client"),
        (json!({ "aud": ["sidestep", "another"] }), "another client"),
        (json!({ "exp": now() - 120 }), "time is over"),
        (json!({ "nonce": "of another" }), "another login"),
        (json!({ "groups": ["others"] }), "may nothing here"),
        (json!({ "groups": null }), "may nothing here"),
    ] {
        let told = scene.refused(|known| known.claims = claims.clone()).await;
        assert!(told.contains(why), "{claims}: {told}");
    }
    for (signs, why) in [
        (Signs::None, "\"none\" is no signature"),
        (Signs::ByThePublicKey, "\"HS256\" is no signature"),
        (Signs::ByAnother, "signature is wrong"),
    ] {
        let told = scene.refused(|known| known.signs = signs).await;
        assert!(told.contains(why), "{told}");
    }
    assert!(access::list(&scene.store).await.unwrap().is_empty());
    // Keys that are changed are asked for, once in a while.
    scene.log_in(&scene.returned()).await.unwrap();
    {
        let mut known = scene.provider.lock().unwrap();
        (known.key, known.kid) = (pair(), "k2".to_owned());
    }
    let begin = std::time::Instant::now();
    while let Err(told) = scene.log_in(&scene.returned()).await {
        assert!(told.contains("no such key") && begin.elapsed().as_secs() < 60, "{told}");
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn without_a_provider_there_is_no_login() {
    let store = Memory::new();
    let controller = network(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::of_folder(folder.path(), &[]).unwrap();
    let certificate = identity.digest();
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    tokio::spawn(Server::new(controller, listener, identity, 10).unwrap().serve());
    let told = Client::new(&at, certificate, None).unwrap().get::<Value>("/v1/login").await.unwrap_err();
    assert!(told.to_string().contains("oidc.toml"), "{told}");
}
