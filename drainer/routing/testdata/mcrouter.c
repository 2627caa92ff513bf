/*
 * peer.py's protocol, answered by mcrouter's
 * furc_hash:
 *   cc -I MCROUTER/mcrouter/lib/fbi mcrouter.c MCROUTER/mcrouter/lib/fbi/hash.c
 * The hash stop is applied as lib/carbon/Keys-inl.h does.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

static char line[1 << 16];

static int next(void) {
  if (!fgets(line, sizeof line, stdin)) return 0;
  line[strcspn(line, "\n")] = 0;
  return 1;
}

/* Decodes the line's base64. */
static size_t decode(char* out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t len = 0;
  unsigned bits = 0, have = 0;
  for (const char* p = line; *p && *p != '='; p++) {
    bits = bits << 6 | (unsigned)(strchr(digits, *p) - digits);
    if ((have += 6) >= 8) out[len++] = (char)(bits >> (have -= 8));
  }
  return len;
}

int main(void) {
  static int sizes[1000], from[1000], to[1000];
  static struct { char bytes[1024]; size_t len; } keys[50000];
  int lists = 0, n = 0;
  next();
  while (next() && *line) {
    int servers = -1;
    for (char* p = line; *p; p++) servers += *p == ' ';
    sscanf(line, "%d %d", &from[lists], &to[lists]);
    sizes[lists++] = servers;
  }
  while (next()) {
    size_t len = decode(keys[n].bytes);
    const char* stop = memmem(keys[n].bytes, len, "|#|", 3);
    keys[n].len = stop ? (size_t)(stop - keys[n].bytes) : len;
    n++;
  }
  for (int l = 0; l < lists; l++) {
    for (int i = from[l]; i < to[l]; i++) printf("%u ", furc_hash(keys[i].bytes, keys[i].len, sizes[l]));
    printf("\n");
  }
}
