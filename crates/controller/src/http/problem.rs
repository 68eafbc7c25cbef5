//! What is answered where something was not done.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fleet::exchange::{Challenge, Problem};

use crate::error::Error;

/// Why something was not done, as it is answered.
#[derive(Debug)]
pub(crate) enum Failed {
    /// By the controller.
    Not(Error),
    /// A question is bound to nothing that was given lately.
    Unbound(String),
    /// Nobody has shown who he is.
    Nobody,
    /// Who asks may not.
    Forbidden(String),
    /// What was asked is no such question.
    Senseless(StatusCode, String),
    /// Too much at once from one place.
    Often,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Not(error)
    }
}

impl From<JsonRejection> for Failed {
    fn from(rejection: JsonRejection) -> Self {
        Failed::Senseless(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Failed {
    fn from(rejection: QueryRejection) -> Self {
        Failed::Senseless(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Failed::Unbound(challenge) => {
                return (StatusCode::UNAUTHORIZED, Json(Challenge { challenge })).into_response();
            }
            Failed::Not(error) => {
                let status = match &error {
                    Error::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
                    Error::Overtaken(_) => StatusCode::CONFLICT,
                    Error::Missing(_) => StatusCode::NOT_FOUND,
                    Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
                    Error::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, error.to_string())
            }
            Failed::Nobody => {
                let why = "show a token that is good: `Authorization: Bearer …`; `sidestep control token` makes one, \
                           or `sidestep control login` where there is an identity provider";
                (StatusCode::UNAUTHORIZED, why.to_owned())
            }
            Failed::Forbidden(why) => (StatusCode::FORBIDDEN, why),
            Failed::Senseless(status, why) => (status, why),
            Failed::Often => {
                (StatusCode::TOO_MANY_REQUESTS, "too much was refused lately: wait a minute".to_owned())
            }
        };
        let mut answer = (status, Json(Problem { error })).into_response();
        // Who is refused keeps no place that others wait for.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

/// Anything else.
pub(crate) async fn no_such_path() -> Failed {
    Failed::Senseless(StatusCode::NOT_FOUND, "there is no such path: see /v1/openapi.json".to_owned())
}
