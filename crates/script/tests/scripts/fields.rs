//! Every field of every built-in protocol: what it reads and writes, in `fields.lua`.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use script::host::{FileError, Module};
use script::testing::{self, Files};
use script::vm::builtin_protocols;

struct NoFiles;

impl Files for NoFiles {
    fn module(&self, _: &str) -> Result<Option<Module>, FileError> {
        Ok(None)
    }

    fn capture(&self, _: &str) -> Result<Vec<u8>, FileError> {
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }
}

#[test]
fn every_field_of_every_protocol_reads_and_writes_what_its_rfc_says() {
    let (path, source) = ("fields.lua", include_str!("fields.lua"));
    let files: Rc<dyn Files> = Rc::new(NoFiles);
    let tests = testing::inspect(path, source, &files).expect("it can be loaded").tests;
    let mut seen = BTreeSet::new();
    for name in &tests {
        let outcome = testing::run(path, source, name, &files);
        assert_eq!(outcome.error.map(|error| error.message), None, "{name}");
        seen.extend(outcome.log);
    }
    let protocols = builtin_protocols().expect("they can be read");
    let all: BTreeSet<_> = protocols
        .iter()
        .flat_map(|protocol| protocol.fields.iter().map(|field| format!("{}:{}", protocol.name, field.name)))
        .collect();
    assert_eq!(seen, all, "each field has its row in fields.lua");
}
