//! What a gateway's process costs: processor time, its part in the kernel, private memory. From `/proc`.

use std::time::Instant;

use lab::Error;

/// Processor time in clock ticks: 10 ms each. Less than this many cannot be divided into kernel and user.
const ENOUGH_TICKS: u64 = 10;

/// What the processes of both gateways have used up to a moment.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    at: Instant,
    /// Process, ticks in its own code, ticks in the kernel.
    both: [(u32, u64, u64); 2],
}

impl Usage {
    /// Up to now.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn now(processes: [u32; 2]) -> Result<Self, Error> {
        let [a, b] = processes.map(|id| {
            let path = format!("/proc/{id}/stat");
            let stat = std::fs::read_to_string(&path).map_err(|source| Error::file(&path, source))?;
            let (user, kernel) = ticks(&stat).unwrap_or_default();
            Ok::<_, Error>((id, user, kernel))
        });
        Ok(Self { at: Instant::now(), both: [a?, b?] })
    }

    /// What they have used since, and their memory now: names and values.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn since(&self) -> Result<Vec<(String, f64)>, Error> {
        let now = Self::now(self.both.map(|(id, ..)| id))?;
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        let mut values = Vec::new();
        for (site, (before, after)) in ["a", "b"].into_iter().zip(self.both.iter().zip(&now.both)) {
            let (user, kernel) = (after.1.saturating_sub(before.1), after.2.saturating_sub(before.2));
            values.push((format!("cpu_percent_{site}"), (user + kernel) as f64 / seconds));
            if user + kernel >= ENOUGH_TICKS {
                values
                    .push((format!("kernel_percent_{site}"), 100.0 * kernel as f64 / (user + kernel) as f64));
            }
            values.push((format!("private_mb_{site}"), private_bytes(after.0)? as f64 / 1e6));
        }
        Ok(values)
    }
}

/// Memory of a process that it shares with no other, bytes.
///
/// # Errors
/// When it has ended.
pub(crate) fn private_bytes(id: u32) -> Result<u64, Error> {
    let path = format!("/proc/{id}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::file(&path, source))?;
    Ok(private(&text))
}

/// proc(5): utime and stime are the 14th and 15th fields of `stat`, cutime and cstime (of programs that it called) the two
/// behind them; the name before may hold spaces.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.rsplit(')').next()?.split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let [user, kernel, child_user, child_kernel] = ticks[..] else { return None };
    Some((user + child_user, kernel + child_kernel))
}

fn private(rollup: &str) -> u64 {
    let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kb = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kb.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn called_programs_count_too() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 120 30 7 8 20 0 3 0 100 1 2 3";
        assert_eq!(ticks(stat), Some((127, 38)));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn private_memory_is_clean_and_dirty() {
        let text = "Rss: 900 kB\nShared_Clean: 700 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 50 kB\n";
        assert_eq!(private(text), 150 * 1024);
    }
}
