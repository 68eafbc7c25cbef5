//! What a process has used so far, as `/proc` tells.

use crate::Error;

/// Processor time that a process has used in all its threads, in its own code and in the kernel, seconds.
pub fn cpu_seconds(id: u32) -> Result<f64, Error> {
    let path = format!("/proc/{id}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|source| Error::file(&path, source))?;
    Ok(cpu_ticks(&stat) as f64 / 100.0)
}

/// Resident memory of a process, bytes.
pub fn resident(id: u32) -> Result<u64, Error> {
    status_bytes(id, "VmRSS:")
}

/// What of it is the process' own, not of files such as its program, bytes.
pub fn anonymous(id: u32) -> Result<u64, Error> {
    status_bytes(id, "RssAnon:")
}

fn status_bytes(id: u32, name: &str) -> Result<u64, Error> {
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).map_err(|source| Error::file(&path, source))?;
    Ok(bytes(&status, name))
}

/// proc(5): utime and stime are the 14th and 15th fields, in ticks of 10 ms; the name before may hold spaces.
fn cpu_ticks(stat: &str) -> u64 {
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process_with_a_strange_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 120 30 7 8 20 0 3 0 100 1 2 3";
        assert_eq!(cpu_ticks(stat), 150);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(bytes("Name:\tx\nVmRSS:\t   2048 kB\nThreads: 1\n", "VmRSS:"), 2 << 20);
        assert_eq!(bytes("Name:\tkthreadd\n", "VmRSS:"), 0);
    }
}
