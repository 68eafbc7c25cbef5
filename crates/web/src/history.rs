//! What has been, over restarts: a sample for each minute of a day and each hour of a month, of each peer.
//!
//! Samples lie in chunks, an hour of minutes or a day of hours, by the time and then by whose they are: what is too old is one
//! range. The store is redb: whatever ends the process, what was committed is there. Its size is bounded by how many peers it
//! follows; the one that was not seen for longest makes room.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase as _, ReadableTable as _, StorageError,
    TableDefinition,
};
use tracing::warn;

use crate::sample::{Chunk, SLOTS_AT_MOST, Sample};

/// Chunks, by tier, number of the chunk, and series.
const CHUNKS: TableDefinition<(u8, u32, u32), &[u8]> = TableDefinition::new("chunks");
/// Numbers of series, and the minute at which each was seen last, by name.
const SERIES: TableDefinition<&str, (u32, u32)> = TableDefinition::new("series");

/// What a peer takes in the store at the most, in octets, with what the store needs for itself.
pub(crate) const OCTETS_PER_SERIES: u64 = 160 * 1024;
/// What is read of the store is remembered in so many octets.
const CACHE: usize = 4 * 1024 * 1024;

/// A resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tier {
    number: u8,
    /// Seconds of a sample.
    pub(crate) step_s: u32,
    /// Samples in a chunk.
    slots: u32,
    /// Chunks that are kept beside the present one.
    kept: u32,
}

/// A day.
pub(crate) const MINUTES: Tier = Tier { number: 0, step_s: 60, slots: 60, kept: 24 };
/// A month.
pub(crate) const HOURS: Tier = Tier { number: 1, step_s: 3600, slots: 24, kept: 31 };

impl Tier {
    /// Chunk, and place in it, of a time in seconds since 1970.
    fn place(self, unix_s: u64) -> (u32, usize) {
        let sample = unix_s / u64::from(self.step_s);
        ((sample / u64::from(self.slots)) as u32, (sample % u64::from(self.slots)) as usize)
    }
}

/// The samples of a series, oldest first, and when they begin.
#[derive(Debug, PartialEq)]
pub(crate) struct Past {
    /// Seconds since 1970.
    pub(crate) from_s: u64,
    /// Absent where there was none.
    pub(crate) samples: Vec<Sample>,
}

/// What has been.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    /// How many series there may be.
    room: usize,
    /// None after it has failed, until it is opened again.
    store: Mutex<Option<Store>>,
}

impl History {
    /// Opens the store, or begins one. One that cannot be read is set aside, and told.
    pub(crate) fn open(path: &Path, octets: u64) -> Result<History, DatabaseError> {
        let room = (octets / OCTETS_PER_SERIES).max(1) as usize;
        let history = History { path: path.to_owned(), room, store: Mutex::default() };
        match history.begin() {
            Ok(store) => *history.store() = Some(store),
            // There may be room later.
            Err(error) if is_full(&error) => warn!("{}: {error}", path.display()),
            Err(error) => return Err(error),
        }
        Ok(history)
    }

    fn begin(&self) -> Result<Store, DatabaseError> {
        let path = &self.path;
        match Store::open(path, self.room) {
            Err(error) if is_unreadable(&error) => {
                let aside = aside(path);
                warn!("{}: {error}; it is now {}, and a new history begins", path.display(), aside.display());
                std::fs::rename(path, aside)?;
                Store::open(path, self.room)
            }
            result => result,
        }
    }

    /// Writes the samples of minutes, by when each begins, in seconds since 1970: all of them, or none.
    pub(crate) fn write(&self, minutes: &[(u64, Vec<(String, Sample)>)]) -> Result<(), redb::Error> {
        self.with(|store| store.write(minutes, self.room))
    }

    /// What is known of a series up to a time.
    pub(crate) fn read(&self, name: &str, tier: Tier, unix_s: u64) -> Result<Past, redb::Error> {
        self.with(|store| store.read(name, tier, unix_s))
    }

    /// Does something with the store. Where that fails it is closed, and opened the next time: after an error of the disk, such
    /// as that it is full, it would refuse everything for good. Where it turns out to be broken, it is set aside.
    fn with<T>(&self, run: impl FnOnce(&mut Store) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let mut place = self.store();
        let mut store = match place.take() {
            Some(store) => store,
            None => self.begin()?,
        };
        let result = guarded(|| run(&mut store));
        if result.is_ok() {
            *place = Some(store);
        } else if matches!(result, Err(redb::Error::Corrupted(_))) {
            let aside = aside(&self.path);
            if std::fs::rename(&self.path, &aside).is_ok() {
                let (path, aside) = (self.path.display(), aside.display());
                warn!("{path} is broken, and is now {aside}: a new history begins");
            }
        }
        result
    }

    fn store(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The database, which panics at its end, too, where its file is broken.
#[derive(Debug)]
struct Store {
    database: Option<Database>,
    /// As in the table: number, and the minute at which it was seen last.
    series: HashMap<String, (u32, u32)>,
}

impl Store {
    fn open(path: &Path, room: usize) -> Result<Store, DatabaseError> {
        guarded(|| {
            let database = Database::builder().set_cache_size(CACHE).create(path)?;
            let mut store = Store { database: Some(database), series: HashMap::new() };
            store.begin(room).map_err(|error| DatabaseError::Storage(into_storage(error)))?;
            Ok(store)
        })
    }

    /// Reads which series there are. Where it was given more room before, those that were seen last stay, and the file shrinks.
    fn begin(&mut self, room: usize) -> Result<(), redb::Error> {
        let database = self.database.as_mut().ok_or(StorageError::DatabaseClosed)?;
        self.series = read_series(database)?;
        let surplus = self.series.len().saturating_sub(room);
        if surplus == 0 {
            return Ok(());
        }
        let mut by_age: Vec<_> =
            self.series.iter().map(|(name, (number, seen))| (*seen, *number, name.clone())).collect();
        by_age.sort();
        by_age.truncate(surplus);
        let transaction = database.begin_write()?;
        {
            let mut numbers = transaction.open_table(SERIES)?;
            for (_, _, name) in &by_age {
                numbers.remove(name.as_str())?;
                self.series.remove(name);
            }
            let forgotten: HashSet<u32> = by_age.iter().map(|(_, number, _)| *number).collect();
            transaction.open_table(CHUNKS)?.retain(|(_, _, series), _| !forgotten.contains(&series))?;
        }
        transaction.commit()?;
        database.compact()?;
        Ok(())
    }

    fn database(&self) -> Result<&Database, StorageError> {
        self.database.as_ref().ok_or(StorageError::DatabaseClosed)
    }

    fn write(&mut self, minutes: &[(u64, Vec<(String, Sample)>)], room: usize) -> Result<(), redb::Error> {
        let mut series = self.series.clone();
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        for (unix_s, samples) in minutes {
            let (unix_s, minute) = (*unix_s, (unix_s / 60) as u32);
            let mut numbers = transaction.open_table(SERIES)?;
            let mut chunks = transaction.open_table(CHUNKS)?;
            for (name, sample) in samples {
                let Some(number) = number_of(&mut series, name, minute, room) else { continue };
                if let Some(forgotten) = number.in_place_of {
                    numbers.remove(forgotten.0.as_str())?;
                    chunks.retain(|(_, _, of), _| of != forgotten.1)?;
                }
                numbers.insert(name.as_str(), (number.number, minute))?;
                let of_hour = put(&mut chunks, MINUTES, number.number, unix_s, *sample)?;
                put(&mut chunks, HOURS, number.number, unix_s, of_hour.mean())?;
            }
            for tier in [MINUTES, HOURS] {
                let now = tier.place(unix_s).0;
                let oldest = now.saturating_sub(tier.kept);
                let old = (tier.number, 0, 0)..(tier.number, oldest, 0);
                // Nothing for long but of the present and the last chunk: the clock may have leapt ahead, and what there is may not
                // be old when it is back.
                if chunks.range(old.end..(tier.number, now.saturating_sub(1), 0))?.next().is_none() {
                    continue;
                }
                // Nothing is there to be removed, but once in an hour.
                if chunks.range(old.clone())?.next().is_some() {
                    chunks.retain_in(old, |_, _| false)?;
                }
            }
        }
        transaction.commit()?;
        self.series = series;
        Ok(())
    }

    fn read(&self, name: &str, tier: Tier, unix_s: u64) -> Result<Past, redb::Error> {
        let series = self.series.get(name).copied();
        let (last, place) = tier.place(unix_s);
        let first = last.saturating_sub(tier.kept);
        let mut samples = Vec::with_capacity((tier.kept as usize + 1) * SLOTS_AT_MOST);
        let transaction = self.database()?.begin_read()?;
        let chunks = match transaction.open_table(CHUNKS) {
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            table => Some(table?),
        };
        for number in first..=last {
            let octets = match (&chunks, series) {
                (Some(chunks), Some((series, _))) => chunks.get((tier.number, number, series))?,
                _ => None,
            };
            let chunk =
                Chunk::parse(octets.as_ref().map_or(&[], |octets| octets.value()), tier.slots as usize);
            samples.extend_from_slice(chunk.samples());
        }
        samples.truncate(samples.len() - tier.slots as usize + place + 1);
        // As long as the tier is meant to be, to the present.
        let wanted = (tier.kept * tier.slots) as usize;
        let surplus = samples.len().saturating_sub(wanted);
        samples.drain(..surplus);
        let from = u64::from(first) * u64::from(tier.slots) + surplus as u64;
        Ok(Past { from_s: from * u64::from(tier.step_s), samples })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

/// Runs what uses the store, which panics at some files that are broken.
fn guarded<T, E: From<StorageError>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("it is laid out as no store is".to_owned()).into()))
}

/// Puts a sample in its place, and returns its chunk.
fn put(
    chunks: &mut redb::Table<'_, (u8, u32, u32), &[u8]>,
    tier: Tier,
    series: u32,
    unix_s: u64,
    sample: Sample,
) -> Result<Chunk, redb::Error> {
    let (number, place) = tier.place(unix_s);
    let key = (tier.number, number, series);
    let mut chunk = {
        let before = chunks.get(key)?;
        Chunk::parse(before.as_ref().map_or(&[], |octets| octets.value()), tier.slots as usize)
    };
    chunk.set(place, sample);
    chunks.insert(key, chunk.octets().as_slice())?;
    Ok(chunk)
}

/// A series' number, and whose place it takes.
struct Number {
    number: u32,
    in_place_of: Option<(String, u32)>,
}

/// The number of a series that is seen now; none where all places are taken by others that are seen, too.
fn number_of(
    series: &mut HashMap<String, (u32, u32)>,
    name: &str,
    minute: u32,
    room: usize,
) -> Option<Number> {
    if let Some((number, seen)) = series.get_mut(name) {
        *seen = minute;
        return Some(Number { number: *number, in_place_of: None });
    }
    let mut in_place_of = None;
    if series.len() >= room {
        let oldest = series.iter().min_by_key(|(_, (number, seen))| (*seen, *number));
        let (forgotten, (number, seen)) = oldest.map(|(name, place)| (name.clone(), *place))?;
        if seen + 1 >= minute {
            return None;
        }
        series.remove(&forgotten);
        in_place_of = Some((forgotten, number));
    }
    let number = series.values().map(|(number, _)| number + 1).max().unwrap_or(0);
    let number = number.max(in_place_of.as_ref().map_or(0, |(_, number)| number + 1));
    series.insert(name.to_owned(), (number, minute));
    Some(Number { number, in_place_of })
}

fn read_series(database: &Database) -> Result<HashMap<String, (u32, u32)>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(SERIES) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(HashMap::new()),
        table => table?,
    };
    let mut series = HashMap::new();
    for entry in table.iter()? {
        let (name, place) = entry?;
        series.insert(name.value().to_owned(), place.value());
    }
    Ok(series)
}

/// Whether it is the file that is wrong, rather than who else has it or the disk.
fn is_unreadable(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::Storage(StorageError::PreviousIo) => false,
        DatabaseError::Storage(StorageError::Io(error)) => {
            matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
        }
        _ => true,
    }
}

/// Whether it is the disk that has no room.
fn is_full(error: &DatabaseError) -> bool {
    let DatabaseError::Storage(StorageError::Io(error)) = error else { return false };
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

fn into_storage(error: redb::Error) -> StorageError {
    match error {
        redb::Error::Io(error) => StorageError::Io(error),
        redb::Error::PreviousIo => StorageError::PreviousIo,
        error => StorageError::Corrupted(error.to_string()),
    }
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("redb.unreadable")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    /// The beginning of a day.
    const DAY: u64 = 20_000 * 24 * HOUR;

    fn sample(tx: f32) -> Sample {
        Sample { rtt_ms: 1.0, tx, rx: 0.0, drops: 0.0, rotations: 0.0, up: 1.0 }
    }

    fn minute(unix_s: u64, name: &str, tx: f32) -> (u64, Vec<(String, Sample)>) {
        (unix_s, vec![(name.to_owned(), sample(tx))])
    }

    fn open(folder: &tempfile::TempDir, octets: u64) -> History {
        History::open(&folder.path().join("history.redb"), octets).unwrap()
    }

    #[test]
    fn a_day_of_minutes_and_a_month_of_hours_are_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let history = open(&folder, u64::MAX);
        let minutes: Vec<_> = (0..25 * 60).map(|at| minute(DAY + at * 60, "a", at as f32)).collect();
        history.write(&minutes).unwrap();
        drop(history);
        let history = open(&folder, u64::MAX);
        let now = DAY + (25 * 60 - 1) * 60;
        let past = history.read("a", MINUTES, now).unwrap();
        assert_eq!((past.samples.len(), past.from_s), (24 * 60, DAY + HOUR));
        assert_eq!((past.samples[0].tx, past.samples[24 * 60 - 1].tx), (60.0, 25.0 * 60.0 - 1.0));
        let past = history.read("a", HOURS, now).unwrap();
        assert_eq!(past.from_s + past.samples.len() as u64 * HOUR, DAY + 25 * HOUR);
        let known: Vec<f32> = past.samples.iter().filter(|one| !one.up.is_nan()).map(|one| one.tx).collect();
        assert_eq!((known.len(), known[0], known[24]), (25, 29.5, 24.0 * 60.0 + 29.5));
        let nobody = history.read("nobody", MINUTES, now).unwrap();
        assert!(nobody.samples.iter().all(|one| one.up.is_nan()));
    }

    #[test]
    fn its_size_is_bounded_whatever_comes() {
        let folder = tempfile::tempdir().unwrap();
        let (room, days) = (8, 40);
        let octets = room * OCTETS_PER_SERIES;
        let history = open(&folder, octets);
        // More peers than there is room for, some of whom leave while others come, for longer than anything is kept.
        for hour in 0..days * 24 {
            let names = (0..room + 4).map(|number| (format!("peer {}", number + hour / 100), sample(1.0)));
            let samples: Vec<_> = names.collect();
            let minutes: Vec<_> = (0..60)
                .step_by(10)
                .map(|minute| (DAY + hour * HOUR + minute * 60, samples.clone()))
                .collect();
            history.write(&minutes).unwrap();
        }
        let length = std::fs::metadata(folder.path().join("history.redb")).unwrap().len();
        assert!(length <= octets, "{length} octets, and {octets} at the most");
        let store = history.store();
        let series = &store.as_ref().unwrap().series;
        assert_eq!(series.len() as u64, room);
        // Those that were gone made room.
        assert!(series.contains_key(&format!("peer {}", (days * 24 - 1) / 100 + 1)), "{series:?}");
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_while_has_made_nothing_old() {
        let folder = tempfile::tempdir().unwrap();
        let history = open(&folder, u64::MAX);
        history.write(&[minute(DAY, "a", 0.0)]).unwrap();
        // For an hour, and another hour begins meanwhile, and a day.
        for at in 0..60 {
            history.write(&[minute(DAY + 400 * 24 * HOUR - 600 + at * 60, "a", 1.0)]).unwrap();
        }
        history.write(&[minute(DAY + 60, "a", 2.0)]).unwrap();
        for (tier, wanted) in [(MINUTES, &[0.0, 2.0][..]), (HOURS, &[1.0])] {
            let past = history.read("a", tier, DAY + 60).unwrap();
            let known = past.samples.iter().filter(|one| !one.up.is_nan()).map(|one| one.tx);
            assert_eq!(known.collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn where_it_is_given_less_room_it_takes_less_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let (many, few) = (64, 16);
        let history = open(&folder, many * OCTETS_PER_SERIES);
        for hour in 0..40 {
            // The later ones were seen last.
            let seen = (0..many).filter(|number| number + 40 > many + hour || *number >= many - few);
            let samples = seen.map(|number| (format!("peer {number}"), sample(number as f32))).collect();
            history.write(&[(DAY + hour * HOUR, samples)]).unwrap();
        }
        drop(history);
        let history = open(&folder, few * OCTETS_PER_SERIES);
        let length = std::fs::metadata(folder.path().join("history.redb")).unwrap().len();
        assert!(length <= few * OCTETS_PER_SERIES, "{length} octets");
        for number in 0..many {
            let past = history.read(&format!("peer {number}"), HOURS, DAY + 39 * HOUR).unwrap();
            let is_known = past.samples.iter().any(|one| !one.up.is_nan());
            assert_eq!(is_known, number >= many - few, "peer {number}");
        }
    }

    #[test]
    fn one_that_cannot_be_read_is_set_aside_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        for octets in [b"no history".to_vec(), vec![0; 10_000], vec![0xa5; 1_000_000]] {
            std::fs::write(&path, &octets).unwrap();
            open(&folder, u64::MAX).write(&[minute(DAY, "a", 1.0)]).unwrap();
            assert_eq!(std::fs::read(aside(&path)).unwrap(), octets);
            std::fs::remove_file(&path).unwrap();
        }
    }

    const WRITER: &str = "SIDESTEP_TEST_HISTORY";

    /// Not a test of its own: what the next one starts, and kills.
    #[test]
    fn writes_until_it_is_killed() {
        let Some(path) = std::env::var_os(WRITER) else { return };
        let history = History::open(Path::new(&path), u64::MAX).unwrap();
        for at in 0.. {
            history.write(&[minute(DAY + at * 60, "a", at as f32)]).unwrap();
            println!("written {at}");
        }
    }

    #[test]
    fn what_was_written_is_there_after_kill_9() {
        use std::io::BufRead as _;
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "history::tests::writes_until_it_is_killed"])
                .env(WRITER, folder.path().join("history.redb"))
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let lines = std::io::BufReader::new(writer.stdout.take().unwrap()).lines();
            let written =
                lines.map_while(Result::ok).filter(|line| line.contains("written ")).take(20).count();
            writer.kill().unwrap();
            writer.wait().unwrap();
            let past = open(&folder, u64::MAX).read("a", MINUTES, DAY + 20 * 60).unwrap();
            let known: Vec<f32> =
                past.samples.iter().filter(|one| !one.up.is_nan()).map(|one| one.tx).collect();
            assert_eq!((written, &known[..20]), (20, &(0..20).map(|at| at as f32).collect::<Vec<_>>()[..]));
            assert!(!aside(&folder.path().join("history.redb")).exists());
        }
    }

    const FULL: &str = "SIDESTEP_TEST_FULL";

    /// Not a test of its own: what the next one starts. What may be written of a file has a limit, as on a disk that is full.
    #[test]
    fn goes_on_when_there_is_room_again() {
        let Some(path) = std::env::var_os(FULL) else { return };
        let limit = |octets: &str| {
            let arguments = [format!("--pid={}", std::process::id()), format!("--fsize={octets}:")];
            assert!(std::process::Command::new("prlimit").args(arguments).status().unwrap().success());
        };
        let history = History::open(Path::new(&path), u64::MAX).unwrap();
        history.write(&[minute(DAY, "a", 0.0)]).unwrap();
        limit("4096");
        for at in 1..4 {
            history.write(&[minute(DAY + at * 60, "b", 1.0)]).unwrap_err();
        }
        let another = History::open(&Path::new(&path).with_file_name("another.redb"), u64::MAX).unwrap();
        another.write(&[minute(DAY, "a", 0.0)]).unwrap_err();
        limit("unlimited");
        another.write(&[minute(DAY, "a", 0.0)]).unwrap();
        history.write(&[minute(DAY + 240, "a", 4.0)]).unwrap();
        let known = |name| {
            let past = history.read(name, MINUTES, DAY + 240).unwrap();
            past.samples.iter().filter(|one| !one.up.is_nan()).map(|one| one.tx).collect::<Vec<_>>()
        };
        assert_eq!((known("a"), known("b")), (vec![0.0, 4.0], vec![]));
        assert!(!aside(Path::new(&path)).exists());
        println!("it has gone on");
    }

    #[test]
    fn a_disk_that_was_full_for_a_while_ends_no_history() {
        let folder = tempfile::tempdir().unwrap();
        // The signal would end the process before it sees an error.
        let script =
            "trap '' XFSZ; exec \"$0\" --exact --nocapture history::tests::goes_on_when_there_is_room_again";
        let output = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .env(FULL, folder.path().join("history.redb"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("it has gone on"), "{said}");
    }

    /// Octets anywhere in the file become others, as on a disk that fails.
    #[test]
    fn whatever_is_in_the_file_nothing_panics() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        open(&folder, u64::MAX).write(&[minute(DAY, "a", 1.0), minute(DAY + 60, "b", 1.0)]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut octets = whole.clone();
            for _ in 0..random.usize(1..40) {
                // Most of the file is empty; the beginning says how it is laid out.
                let end = if random.bool() { 4096 } else { octets.len() };
                octets[random.usize(..end)] = random.u8(..);
            }
            if random.u8(..) < 64 {
                octets.truncate(random.usize(..octets.len()));
            }
            std::fs::write(&path, &octets).unwrap();
            if let Ok(history) = History::open(&path, u64::MAX) {
                let _ = history.write(&[minute(DAY + 120, "a", 1.0)]);
                let _ = history.read("a", MINUTES, DAY + 120);
            }
            let _ = std::fs::remove_file(aside(&path));
        }
    }
}
