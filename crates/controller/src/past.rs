//! Documents that were in force, as long as they are kept.

use fleet::document::{Head, Serial};
use fleet::fleet::Fleet;
use store::Store;

use crate::controller::Controller;
use crate::error::Error;
use crate::load;
use crate::preview::Preview;

impl<S: Store> Controller<S> {
    /// The heads of the documents that are kept, oldest first.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn documents(&self) -> Result<Vec<Head>, Error> {
        let documents = load::load(self.store(), false).await?.documents;
        let read = |head: Result<Head, _>| {
            head.map_err(|error: fleet::signed::NotUnderstood| Error::Broken(error.to_string()))
        };
        documents.values().map(|stored| read(stored.head.read())).collect()
    }

    /// A document, and what was different from the one before.
    ///
    /// # Errors
    /// If it is not kept, or the store does not answer.
    pub async fn past(&self, serial: Serial) -> Result<(Head, Preview), Error> {
        let missing =
            || Error::Missing(format!("document {}: it is not kept any more, or not there yet", serial.0));
        let after = self.at(serial).await?.ok_or_else(missing)?;
        let head = after.document().map(|document| document.head.clone()).ok_or_else(missing)?;
        // Of the first one that is kept everything is new.
        let before = self.at(Serial(serial.0.saturating_sub(1))).await?;
        let before = before.unwrap_or_else(|| Fleet::new(after.chain().clone()));
        Ok((head, Preview::computed(before, after).await?))
    }

    /// The fleet as a document had it, without what sites have said of themselves.
    async fn at(&self, serial: Serial) -> Result<Option<Fleet>, Error> {
        load::at(self.store(), serial).await
    }
}
