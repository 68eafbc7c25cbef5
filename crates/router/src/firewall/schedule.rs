//! When a rule holds: days of the week, and minutes of the day.

/// When a rule holds, in local time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Its name in the file.
    pub name: String,
    /// Days of the week, 0 is Monday; all where empty.
    pub days: Vec<u8>,
    /// Minute of the day at which it begins, 0 to 1439.
    pub from: u16,
    /// Minute of the day at which it ends, 1 to 1440; before `from` where it goes on after midnight, with the day's
    /// hours before that and those of the same day after it.
    pub to: u16,
}

impl Schedule {
    /// Whether the rule holds then.
    #[must_use]
    pub fn applies(&self, moment: Moment) -> bool {
        (self.days.is_empty() || self.days.contains(&moment.day))
            && self.pieces().iter().any(|(from, to)| (*from..*to).contains(&moment.minute))
    }

    /// The minutes of a day, each piece without its end.
    #[must_use]
    pub fn pieces(&self) -> Vec<(u16, u16)> {
        if self.from < self.to {
            return vec![(self.from, self.to)];
        }
        [(0, self.to), (self.from, 1440)].into_iter().filter(|(from, to)| from < to).collect()
    }
}

/// A minute of a week, in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// 0 is Monday.
    pub day: u8,
    /// Of the day, 0 to 1439.
    pub minute: u16,
}

/// What schedules, which are in local time, take to be written for the kernel, in minutes. The default is a machine in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeZone {
    /// How far local time is ahead of UTC.
    pub ahead: i32,
    /// How far the kernel's own time zone is behind UTC. Its days begin then; its hours are those of UTC.
    pub kernel_behind: i32,
}

/// Days as they are written.
pub const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The minute of the day that `09:30` is; `24:00` is 1440.
#[must_use]
pub fn minute_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    (minute < 60 && hour * 60 + minute <= 1440).then_some(hour * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_over_midnight_has_two_pieces() {
        let night = Schedule { name: String::new(), days: vec![4], from: 22 * 60, to: 6 * 60 };
        let at = |day, minute| night.applies(Moment { day, minute });
        assert!(at(4, 0) && at(4, 359) && at(4, 1439));
        assert!(!at(4, 360) && !at(5, 0));
    }
}
