//! When the provider wants to be asked again.
//!
//! Owns: the forms of it: milliseconds, seconds, a date, and Google's in the body.
//! Never: waits; the loop decides what to make of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::reported::unlisted;

/// How long the headers ask to wait, if they do.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return seconds(milliseconds / 1000.0);
    }
    let value = text("retry-after")?;
    if let Ok(number) = value.parse::<f64>() {
        return seconds(number);
    }
    let then = http_date(value)?;
    // By the server's clock where it tells it: ours may differ by minutes.
    let now = text("date")
        .and_then(http_date)
        .unwrap_or_else(|| now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    Some(Duration::from_secs(then.saturating_sub(now)))
}

/// How long Google's error object asks to wait: `"retryDelay": "34.5s"` among its details.
pub(super) fn retry_delay(body: &Value) -> Option<Duration> {
    let details = unlisted(body).pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    seconds(delay.strip_suffix('s')?.parse().ok()?)
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number.max(0.0)).ok()
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that servers
/// may send.
fn http_date(text: &str) -> Option<u64> {
    let (_, date) = text.split_once(", ")?;
    let mut parts = date.split(' ');
    let day: i64 = parts.next()?.parse().ok()?;
    let month = parts.next()?;
    let year: i64 = parts.next()?.parse().ok()?;
    let mut clock = parts.next()?.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month)? as i64 + 1;
    let in_range = (1..=31).contains(&day) && (1970..=9999).contains(&year);
    if !in_range || parts.next()? != "GMT" || !(0..24).contains(&hour) {
        return None;
    }
    let days = days_since_1970(year, month, day);
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

/// Counts from March, so that the day of a leap year comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    type Headers = &'static [(&'static str, &'static str)];

    /// Headers, and the delay in milliseconds.
    const CASES: &[(Headers, Option<u64>)] = &[
        (&[], None),
        (&[("retry-after", "7")], Some(7000)),
        (&[("retry-after", " 0.5 ")], Some(500)),
        (&[("retry-after", "-3")], Some(0)),
        (&[("retry-after", "7"), ("retry-after-ms", "250")], Some(250)),
        (&[("retry-after", "7"), ("retry-after-ms", "soon")], Some(7000)),
        (&[("retry-after", "inf")], None),
        (&[("retry-after", "tomorrow")], None),
        (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(37_000)),
        (&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(0)),
        (
            &[
                ("date", "Thu, 29 Feb 2024 23:59:50 GMT"),
                ("retry-after", "Fri, 01 Mar 2024 00:00:05 GMT"),
            ],
            Some(15_000),
        ),
        (&[("retry-after", "Sun, 06 Foo 1994 08:49:37 GMT")], None),
        (&[("retry-after", "Sun, 06 Nov 1994 08:49 GMT")], None),
        (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 PST")], None),
        (&[("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT")], None),
    ];

    #[test]
    fn all_three_forms_are_understood() {
        // 1994-11-06 08:49:00
        let now = UNIX_EPOCH + Duration::from_secs(784_111_740);
        for (rows, expected) in CASES {
            let mut headers = HeaderMap::new();
            for (name, value) in *rows {
                headers.insert(*name, value.parse().unwrap());
            }
            let delay = retry_after(&headers, now).map(|delay| delay.as_millis() as u64);
            assert_eq!(delay, *expected, "{rows:?}");
        }
    }

    #[test]
    fn a_delay_in_the_body_is_understood() {
        for (details, expected) in [
            (
                r#"[{"@type":"QuotaFailure"},{"@type":"RetryInfo","retryDelay":"34.5s"}]"#,
                Some(34_500),
            ),
            (r#"[{"retryDelay":"0s"}]"#, Some(0)),
            (r#"[{"retryDelay":"soon"}]"#, None),
            (r#"[{"retryDelay":5}]"#, None),
            ("null", None),
        ] {
            let details: Value = serde_json::from_str(details).unwrap();
            let body = serde_json::json!([{ "error": { "code": 429, "details": details } }]);
            let milliseconds = |delay: Duration| delay.as_millis() as u64;
            assert_eq!(retry_delay(&body).map(milliseconds), expected, "{details}");
            assert_eq!(retry_delay(&body[0]).map(milliseconds), expected, "{details}");
        }
    }
}
