//! What was found.

use serde::Serialize;

use super::job::Job;
use crate::comparison::results::Results;

/// All that was found; also what goes into the JSON.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) results: Results,
    pub(super) parts: Vec<Taken>,
}

/// How somebody did a job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Taken {
    pub(super) job: Job,
    pub(super) contender: String,
    /// Lines of code for the job, and of what loads it.
    pub(super) lines: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loader_lines: Option<usize>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cannot: Option<String>,
    /// How it was seen not to do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
    /// What it does otherwise than others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}
