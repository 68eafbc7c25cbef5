//! The file: its mode, its schema, and how it comes to the schema of this version.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::error::{Failure, OpenError};
use crate::sqlite::database::failure;

/// Whose databases these are: `SsFl`, where `file` looks.
const APPLICATION: i64 = 0x5373_466c;
/// Each brings the schema from the number before it to its own, the first from nothing. None is ever changed: files have it.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];
/// How long another program may hold the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the file, or makes it.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    make(path)?;
    let failed = |failure| OpenError::Failed { path: path.to_owned(), failure };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| failed(failure(error)))?;
    let found = look(&connection).map_err(|error| failed(failure(error)))?;
    let known = schema();
    match found {
        Found::Foreign => return Err(OpenError::Foreign(path.to_owned())),
        Found::Schema(schema) if schema > known => {
            return Err(OpenError::Newer { path: path.to_owned(), schema, known });
        }
        Found::Schema(_) => {}
    }
    prepare(&mut connection).map_err(|error| failed(failure(error)))?;
    match connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0)) {
        Ok(said) if said == "ok" => Ok(connection),
        Ok(said) => Err(failed(Failure::Broken(said))),
        Err(error) => Err(failed(failure(error))),
    }
}

/// Makes an empty file that only we can read, or looks whether that is so.
fn make(path: &Path) -> Result<(), OpenError> {
    let file = |source| OpenError::File { path: path.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mode = std::fs::metadata(path).map_err(file)?.permissions().mode() & 0o777;
            if mode & 0o077 == 0 { Ok(()) } else { Err(OpenError::Open { path: path.to_owned(), mode }) }
        }
        Err(error) => Err(file(error)),
    }
}

enum Found {
    /// 0 is an empty file.
    Schema(i64),
    Foreign,
}

fn schema() -> i64 {
    MIGRATIONS.len() as i64
}

fn look(connection: &Connection) -> rusqlite::Result<Found> {
    connection.busy_timeout(PATIENCE)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    let application: i64 = pragma(connection, "application_id")?;
    let schema: i64 = pragma(connection, "user_version")?;
    let empty = tables == 0 && application == 0 && schema == 0;
    let ours = empty || (application == APPLICATION && schema > 0);
    Ok(if ours { Found::Schema(schema) } else { Found::Foreign })
}

/// Makes it safe, and brings it to the latest schema.
fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    write_ahead(connection)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
    )?;
    if pragma(connection, "user_version")? == schema() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been first.
    let from = usize::try_from(pragma(&transaction, "user_version")?).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(from) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", schema().max(from as i64))?;
    transaction.commit()
}

/// SQLite itself does not wait for this.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let begin = Instant::now();
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begin.elapsed() < PATIENCE =>
            {
                sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
