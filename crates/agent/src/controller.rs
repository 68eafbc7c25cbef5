//! Asking a controller, over TLS.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fleet::agent::{Asker, WAIT};
use fleet::enrolment::{APPLY, Application, Status, status_path};
use fleet::exchange::{Answer, Challenge, FromController, Question, Request, SYNC, Told};
use fleet::key::Digest;
use fleet::news::News;
use fleet::signed::Signed;
use fleet::standby::{FromRegister, REGISTER, Registered, Wish};
use hyper::{Method, StatusCode};
use rustls_pki_types::ServerName;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio_rustls::rustls;

use crate::http::{CONNECT, Connection, HttpError, Reply, connect, connect_inside};
use crate::tls;

/// How much longer than it may be held back an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same of the register, by which gateways take turns: another controller may answer.
const TURN_PATIENCE: Duration = Duration::from_secs(3);

/// A connection to a controller.
pub(crate) struct Controller {
    place: String,
    certificate: Digest,
    connection: Connection,
    challenge: String,
}

impl Controller {
    /// The controller at a place, if it is the one with this certificate.
    pub(crate) async fn at(place: &str, certificate: Digest) -> Result<Self, HttpError> {
        Self::over(place, connect(place).await?, certificate).await
    }

    /// The same inside of the tunnels, asked from this site's own address.
    pub(crate) async fn inside(
        address: SocketAddr,
        own: Option<IpAddr>,
        certificate: Digest,
    ) -> Result<Self, HttpError> {
        Self::over(&address.to_string(), connect_inside(address, own).await?, certificate).await
    }

    async fn over(place: &str, stream: TcpStream, certificate: Digest) -> Result<Self, HttpError> {
        let unreachable = |why: String| HttpError::Unreachable { place: place.to_owned(), why };
        let connector = tls::connector(certificate).map_err(|error| unreachable(error.to_string()))?;
        // Any name does: it is not sent, and nothing is compared with it.
        let name = ServerName::try_from("controller.invalid").expect("a name");
        let stream = tokio::time::timeout(CONNECT, connector.connect(name, stream))
            .await
            .map_err(|_| unreachable("it does not speak TLS".to_owned()))?
            .map_err(|error| {
                let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
                match inner {
                    Some(rustls::Error::InvalidCertificate(_)) => {
                        let why = "it has another certificate".to_owned();
                        HttpError::Stranger { place: place.to_owned(), why }
                    }
                    _ => unreachable(error.to_string()),
                }
            })?;
        let connection = Connection::over(place, stream).await?;
        Ok(Controller { place: place.to_owned(), certificate, connection, challenge: String::new() })
    }

    /// Asks for news; the answer may be held back for so long while there are none.
    pub(crate) async fn sync(
        &mut self,
        asker: &Asker,
        question: Question,
        news: &News,
        wait: Duration,
    ) -> Result<(Answer, Told), HttpError> {
        let path = format!("{SYNC}?wait={}", wait.min(WAIT).as_secs());
        let request = |certificate, challenge| Request {
            asking: asker.asking(question, certificate, challenge),
            news: news.clone(),
        };
        let reply = self.ask_bound(&path, request, wait + PATIENCE).await?;
        let answer: FromController = reply.read(&self.place)?;
        self.challenge = answer.challenge;
        Ok((answer.answer, Told::of_status(reply.status.as_u16())))
    }

    /// Asks whose turn it is, of the two gateways of the site, or begins one; the answer may be held back for so long.
    pub(crate) async fn turn(
        &mut self,
        asker: &Asker,
        wish: &Wish,
        wait: Duration,
    ) -> Result<Registered, HttpError> {
        let path = format!("{REGISTER}?wait={}", wait.as_secs());
        let wishing = |certificate, challenge| asker.wishing(wish.clone(), certificate, challenge);
        let reply = self.ask_bound(&path, wishing, wait + TURN_PATIENCE).await?;
        let answer: FromRegister = reply.read(&self.place)?;
        self.challenge = answer.challenge;
        Ok(answer.registered)
    }

    /// Asks something that is bound to its certificate and to a challenge: once more, where it wants another challenge.
    async fn ask_bound<T: Serialize + Sync>(
        &mut self,
        path: &str,
        signed: impl Fn(Digest, String) -> T,
        within: Duration,
    ) -> Result<Reply, HttpError> {
        let asked = signed(self.certificate, self.challenge.clone());
        let reply = self.connection.ask(Method::POST, path, Some(&asked), within).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        let strange = |why| HttpError::Strange { place: self.place.clone(), why };
        self.challenge = reply.parse::<Challenge>().map_err(strange)?.challenge;
        let asked = signed(self.certificate, self.challenge.clone());
        self.connection.ask(Method::POST, path, Some(&asked), within).await
    }

    /// Applies for membership.
    pub(crate) async fn apply(&mut self, application: &Signed<Application>) -> Result<Status, HttpError> {
        let reply = self.connection.ask(Method::POST, APPLY, Some(application), PATIENCE).await?;
        reply.read(&self.place)
    }

    /// What became of an application.
    pub(crate) async fn status(&mut self, id: &str) -> Result<Status, HttpError> {
        let reply = self.connection.ask(Method::GET, &status_path(id), None::<&()>, PATIENCE).await?;
        reply.read(&self.place)
    }
}
