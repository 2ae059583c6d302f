//! Reads TSPLIB: symmetric problems with coordinates or explicit weights.

use crate::problems::text::{InputError, Words, short};
use crate::problems::tsp::Instance;
use crate::problems::tsp::distance::{self, Metric};

/// The largest number of cities. Each level of the search keeps a byte for each pair.
pub const CITIES_MAX: usize = 400;
/// The largest distance.
pub const DISTANCE_MAX: i64 = 1_000_000_000;

/// A form of `EDGE_WEIGHT_FORMAT`. For a symmetric matrix each column form equals a row form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Full,
    Upper,
    Lower,
    UpperWithDiagonal,
    LowerWithDiagonal,
}

#[derive(Default)]
struct Header {
    dimension: Option<usize>,
    weights: Option<Weights>,
    form: Option<Form>,
}

#[derive(Clone, Copy)]
enum Weights {
    Computed(Metric),
    Explicit,
}

/// Reads a text in TSPLIB's format.
///
/// # Errors
/// If the text is broken or of a kind that is not supported: the line and the reason.
pub fn parse(text: &str) -> Result<Instance, InputError> {
    let mut header = Header::default();
    let mut lines = text.lines().enumerate().peekable();
    let mut matrix = None;
    let mut last = 1;
    while let Some((index, line)) = lines.next() {
        last = index + 1;
        let line = line.trim();
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        match (key.trim(), value.trim()) {
            ("", _) | ("NAME" | "COMMENT" | "DISPLAY_DATA_TYPE" | "NODE_COORD_TYPE", _) => {}
            ("EOF", _) => break,
            ("NODE_COORD_SECTION" | "EDGE_WEIGHT_SECTION" | "DISPLAY_DATA_SECTION", _) => {
                let mut body = Vec::new();
                while let Some((index, line)) = lines.next_if(|(_, line)| !is_keyword(line)) {
                    body.push((index + 1, line));
                }
                if let Some(read) = section(&header, key.trim(), &body, last)? {
                    matrix = Some(read);
                }
            }
            (key, value) => header.set(key, value).map_err(|why| InputError::new(last, why))?,
        }
    }
    let end = |reason: &str| InputError::new(last, reason);
    let cities = header.dimension.ok_or_else(|| end("there is no DIMENSION"))?;
    let distances = matrix.ok_or_else(|| end("there are neither coordinates nor weights"))?;
    Ok(Instance::new(cities, distances))
}

/// Whether a line begins a part of the file: it starts with a capital letter, numbers do not.
fn is_keyword(line: &str) -> bool {
    line.trim_start().starts_with(|letter: char| letter.is_ascii_uppercase())
}

impl Header {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "TYPE" if value == "TSP" => {}
            "TYPE" => {
                return Err(format!("TYPE is {}, only TSP is supported", short(value)));
            }
            "DIMENSION" if self.dimension.is_some() => {
                return Err("DIMENSION is there twice".to_owned());
            }
            "DIMENSION" => {
                let cities = value.parse().ok().filter(|n| (3..=CITIES_MAX).contains(n));
                self.dimension = Some(cities.ok_or_else(|| {
                    let shown = short(value);
                    format!("DIMENSION is `{shown}`, but it must be from 3 to {CITIES_MAX}")
                })?);
            }
            "EDGE_WEIGHT_TYPE" => self.weights = Some(weights(value)?),
            "EDGE_WEIGHT_FORMAT" if value == "FUNCTION" => {}
            "EDGE_WEIGHT_FORMAT" => self.form = Some(form(value)?),
            _ => return Err(format!("`{}` is no keyword of TSPLIB", short(key))),
        }
        Ok(())
    }
}

fn weights(value: &str) -> Result<Weights, String> {
    Ok(match value {
        "EUC_2D" => Weights::Computed(Metric::Euclidean),
        "CEIL_2D" => Weights::Computed(Metric::EuclideanUp),
        "GEO" => Weights::Computed(Metric::Geographic),
        "ATT" => Weights::Computed(Metric::PseudoEuclidean),
        "EXPLICIT" => Weights::Explicit,
        _ => {
            let known = "EUC_2D, CEIL_2D, GEO, ATT and EXPLICIT are supported";
            return Err(format!("EDGE_WEIGHT_TYPE is {}, {known}", short(value)));
        }
    })
}

fn form(value: &str) -> Result<Form, String> {
    Ok(match value {
        "FULL_MATRIX" => Form::Full,
        "UPPER_ROW" | "LOWER_COL" => Form::Upper,
        "LOWER_ROW" | "UPPER_COL" => Form::Lower,
        "UPPER_DIAG_ROW" | "LOWER_DIAG_COL" => Form::UpperWithDiagonal,
        "LOWER_DIAG_ROW" | "UPPER_DIAG_COL" => Form::LowerWithDiagonal,
        _ => return Err(format!("EDGE_WEIGHT_FORMAT {} is not supported", short(value))),
    })
}

/// The distances of a section; none if it has none.
fn section(
    header: &Header,
    key: &str,
    body: &[(usize, &str)],
    line: usize,
) -> Result<Option<Vec<i64>>, InputError> {
    let cities = header
        .dimension
        .ok_or_else(|| InputError::new(line, format!("{key} comes before DIMENSION")))?;
    match (key, header.weights) {
        ("DISPLAY_DATA_SECTION", _) => Ok(None),
        (_, None) => Err(InputError::new(line, format!("{key} comes before EDGE_WEIGHT_TYPE"))),
        ("NODE_COORD_SECTION", Some(Weights::Computed(metric))) => {
            let points = coordinates(cities, body, line)?;
            distance::matrix(&points, metric)
                .map(Some)
                .ok_or_else(|| InputError::new(line, format!("a distance is over {DISTANCE_MAX}")))
        }
        ("NODE_COORD_SECTION", Some(Weights::Explicit)) => Ok(None),
        (_, Some(Weights::Computed(_))) => {
            Err(InputError::new(line, "EDGE_WEIGHT_SECTION needs EDGE_WEIGHT_TYPE : EXPLICIT"))
        }
        (_, Some(Weights::Explicit)) => {
            let reason = "EDGE_WEIGHT_SECTION comes before EDGE_WEIGHT_FORMAT";
            let form = header.form.ok_or_else(|| InputError::new(line, reason))?;
            explicit(cities, form, body, line).map(Some)
        }
    }
}

fn coordinates(
    cities: usize,
    body: &[(usize, &str)],
    line: usize,
) -> Result<Vec<(f64, f64)>, InputError> {
    let mut points = vec![None; cities];
    let mut last = line;
    for &(line, text) in body.iter().filter(|(_, text)| !text.trim().is_empty()) {
        last = line;
        let error = |reason: String| InputError::new(line, reason);
        let words: Vec<&str> = text.split_whitespace().collect();
        let [city, x, y] = words[..] else {
            return Err(error(format!("a city has 3 words, here are {}", words.len())));
        };
        let place = city.parse::<usize>().ok().filter(|city| (1..=cities).contains(city));
        let Some(place) = place else {
            return Err(error(format!("`{}` is no city from 1 to {cities}", short(city))));
        };
        let number = |word: &str| {
            let number = word.parse::<f64>().ok().filter(|number| number.abs() < 1e9);
            number.ok_or_else(|| error(format!("`{}` is no coordinate below 1e9", short(word))))
        };
        if points[place - 1].replace((number(x)?, number(y)?)).is_some() {
            return Err(error(format!("city {place} is there twice")));
        }
    }
    let missing = points.iter().position(Option::is_none);
    if let Some(missing) = missing {
        return Err(InputError::new(last, format!("city {} has no coordinates", missing + 1)));
    }
    Ok(points.into_iter().flatten().collect())
}

fn explicit(
    cities: usize,
    form: Form,
    body: &[(usize, &str)],
    line: usize,
) -> Result<Vec<i64>, InputError> {
    let text: String = body.iter().flat_map(|(_, line)| [line, "\n"]).collect();
    let first = body.first().map_or(line + 1, |(line, _)| *line);
    let lift = |error: InputError| InputError::new(error.line + first - 1, error.reason);
    let mut words = Words::new(&text);
    let mut matrix = vec![0; cities * cities];
    let mut seen = vec![false; cities * cities];
    for row in 0..cities {
        let columns = match form {
            Form::Full => 0..cities,
            Form::Upper => row + 1..cities,
            Form::Lower => 0..row,
            Form::UpperWithDiagonal => row..cities,
            Form::LowerWithDiagonal => 0..row + 1,
        };
        for column in columns {
            let what = format!("the distance of {} and {}", row + 1, column + 1);
            let distance = words.number(&what, 0, DISTANCE_MAX).map_err(lift)?;
            if row == column {
                continue;
            }
            let (one, other) = (row * cities + column, column * cities + row);
            if seen[other] && matrix[other] != distance {
                let reason = format!("{what} differs from that of {} and {}", column + 1, row + 1);
                return Err(lift(words.error(reason)));
            }
            seen[one] = true;
            (matrix[one], matrix[other]) = (distance, distance);
        }
    }
    if let Some(word) = words.next() {
        let reason = format!("`{}` follows the last distance of {cities} cities", short(word));
        return Err(lift(words.error(reason)));
    }
    Ok(matrix)
}
