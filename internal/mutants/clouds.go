package main

var clouds = []mutant{}
