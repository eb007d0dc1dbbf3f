# Two hours of requests of 600 users, most of them small, for docs/guide/tune.md: time and user.
function uniform() { x = (x * 16807) % 2147483647; return x / 2147483647 }
BEGIN {
  x = 1
  print "time,user"
  for (user = 1; user <= 600; user++) {
    size = 2 / sqrt(uniform())
    for (t = 900 * uniform(); t < 7200; t += 300 + 1200 * uniform()) {
      s = t
      for (i = 0; i < 1 + size * uniform() && i < 60 && s < 7200; i++) {
        printf "%.3f,user-%d\n", 1763280000 + s, user
        s += 3 * uniform()
      }
    }
  }
  # One user scrapes: ten requests a second for twenty minutes.
  for (t = 2000; t < 3200; t += 0.1) printf "%.3f,scraper\n", 1763280000 + t
}
