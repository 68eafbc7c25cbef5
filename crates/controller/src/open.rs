//! Which store: the one place that knows all kinds of them.

use std::path::Path;

use store::{Etcd, EtcdOptions, EtcdTls, Key, OpenError, Sqlite, Store};

/// The name below which a fleet's keys are in etcd, if the place says no other.
const BELOW: &str = "sidestep";

/// Something that is done with a store, of whichever kind.
pub trait Job {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<S: Store>(self, store: S) -> impl Future<Output = Self::Output>;
}

/// A store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoStore {
    /// It does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is nowhere.
    #[error(
        "{place}: {why}: a store is the path of a file, etcd://HOST:PORT,HOST:PORT/NAME, or \
         etcds://HOST:PORT/NAME?ca=FILE&certificate=FILE&key=FILE"
    )]
    Place {
        /// What was said.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Does something with the store at a place: the path of a file; `etcd://HOST:PORT,HOST:PORT/NAME`, with NAME that all its keys
/// are below; or `etcds://…` over TLS, with `ca`, and perhaps `certificate` and `key`, files in PEM, behind a `?`. `user`, and
/// the file `password`, are for both.
///
/// # Errors
/// If there is no such store.
pub async fn with_store<J: Job>(place: &str, job: J) -> Result<J::Output, NoStore> {
    match place.split_once("://") {
        Some((scheme, rest)) => {
            let wrong = |why: String| NoStore::Place { place: place.to_owned(), why };
            let options = etcd(scheme, rest, &|file| std::fs::read(file)).map_err(wrong)?;
            Ok(job.run(Etcd::new(&options)?).await)
        }
        None => Ok(job.run(Sqlite::open(Path::new(place))?).await),
    }
}

/// How etcd is reached, by what is behind `etcd://`.
fn etcd(
    scheme: &str,
    rest: &str,
    read: &dyn Fn(&str) -> std::io::Result<Vec<u8>>,
) -> Result<EtcdOptions, String> {
    let http = match scheme {
        "etcd" => "http",
        "etcds" => "https",
        _ => return Err(format!("{scheme}:// is not known")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (members, name) = rest.split_once('/').unwrap_or((rest, BELOW));
    let below = Key::new(name).map_err(|error| error.to_string())?;
    let members: Vec<&str> = members.split(',').collect();
    if members.iter().any(|member| !member.contains(':')) {
        return Err("each member is HOST:PORT".to_owned());
    }
    let mut options = EtcdOptions::new(members.iter().map(|member| format!("{http}://{member}")), &below);
    let (mut ca, mut certificate, mut key, mut user, mut password) = (None, None, None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
        let file = || read(value).map(Some).map_err(|error| format!("{value}: {error}"));
        match name {
            "ca" => ca = file()?,
            "certificate" => certificate = file()?,
            "key" => key = file()?,
            "password" => password = file()?,
            "user" => user = Some(value),
            _ => return Err(format!("{name:?} is not known")),
        }
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("certificate and key go together".to_owned()),
    };
    match (ca, identity) {
        (Some(authorities), identity) => options = options.tls(EtcdTls { authorities, identity }),
        (None, Some(_)) => return Err("a certificate needs the authority's, too: ca=FILE".to_owned()),
        (None, None) => {}
    }
    match (user, password) {
        (Some(user), Some(password)) => {
            let password = String::from_utf8(password).map_err(|_| "the password is no text".to_owned())?;
            Ok(options.user(user, password.trim_end()))
        }
        (None, None) => Ok(options),
        _ => Err("user and password go together".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_by_its_members() {
        let read = |_: &str| Ok(b"pem".to_vec());
        let shown = |scheme, rest| etcd(scheme, rest, &read).map(|options| format!("{options:?}"));
        let two = shown("etcd", "10.0.0.1:2379,[2001:db8::2]:2379/fleets/north").unwrap();
        assert!(two.contains("http://10.0.0.1:2379") && two.contains("http://[2001:db8::2]:2379"), "{two}");
        assert!(two.contains("fleets/north/"), "{two}");
        assert!(shown("etcd", "a:1").unwrap().contains("sidestep/"));
        let all = shown("etcds", "a:1/n?ca=x&certificate=y&key=z&user=u&password=p").unwrap();
        assert!(
            all.contains("https://a:1") && all.contains("identity: true") && !all.contains("pem"),
            "{all}"
        );
        for (scheme, rest, why) in [
            ("mysql", "a:1", "not known"),
            ("etcd", "a", "HOST:PORT"),
            ("etcd", "", "HOST:PORT"),
            ("etcd", "a:1/", "empty segment"),
            ("etcds", "a:1?certificate=x", "go together"),
            ("etcds", "a:1?certificate=x&key=y", "ca=FILE"),
            ("etcd", "a:1?user=u", "go together"),
            ("etcd", "a:1?colour=red", "\"colour\" is not known"),
            ("etcd", "a:1?ca", "no value"),
        ] {
            let told = shown(scheme, rest).unwrap_err();
            assert!(told.contains(why), "{rest}: {told}");
        }
    }
}
